package resolvers

import "context"

func (r *Root) sessionSource(context.Context, feedArgs, *form, string) (source, error) {
	panic("not reached")
}
