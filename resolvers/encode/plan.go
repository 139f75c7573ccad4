// Package encode turns events into the bytes of one GraphQL selection without executing it: the selection is compiled
// once, and the result knows neither viewer nor resolver, so what it writes may be shared by all who select the same. It
// writes what the executor would, byte for byte; what it does not know, it refuses to compile.
package encode

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/harness-engine/harness-engine/engine/event"
)

// Names of the root fields that can be compiled.
const (
	RunEvents     = "runEvents"
	SessionEvents = "sessionEvents"
)

var (
	// ErrUnknown: the operation holds something that cannot be compiled. Have it executed.
	ErrUnknown = errors.New("encode: not a plain selection of events")
	// ErrValue: an event holds a value that the schema has no form for.
	ErrValue = errors.New("encode: value without a form")
)

// Batch is what one delivery of a subscription shows.
type Batch struct {
	RunID    string
	Events   []event.Event
	Through  int64
	CaughtUp bool

	// Of sessionEvents.
	Ord, Epoch int64
	Cursor     string // through, as the client sees it
}

// Plan is a compiled selection of one root field. It may be used concurrently.
type Plan struct {
	key      string
	head     string
	batch    []step[*Batch]
	caughtUp bool
}

// Key is the same for selections that give the same bytes: fragments, directives and variables are resolved in it.
func (p *Plan) Key() string { return p.key }

// SelectsCaughtUp reports whether Batch.CaughtUp makes a difference.
func (p *Plan) SelectsCaughtUp() bool { return p.caughtUp }

// Append appends the complete result of the batch, {"data":{…}}, to dst. It fails with ErrValue, wrapped, and then dst is
// of no use.
func (p *Plan) Append(dst []byte, b *Batch) ([]byte, error) {
	w := writer{b: append(dst, `{"data":`...)}
	p.data(&w, b)
	if w.err != nil {
		return nil, w.err
	}
	return append(w.b, '}'), nil
}

// data writes the value of data.
func (p *Plan) data(w *writer, b *Batch) {
	w.raw(p.head)
	run(w, p.batch, b)
	w.b = append(w.b, '}')
}

// Compile compiles an operation that was validated. It fails with ErrUnknown, wrapped.
func Compile(op *graphql.OperationContext) (_ *Plan, err error) {
	root, err := Field(op)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil { // the executor's reading of directives knows no errors
			err = fmt.Errorf("%w: %v", ErrUnknown, p)
		}
	}()
	c := &compiler{op: op}
	p := &Plan{head: "{" + quoted(root.Alias) + ":"}
	c.note(root.Name, "(", root.Alias)
	object := &runBatch
	if root.Name == SessionEvents {
		object = &sessionBatch
	}
	if p.batch, err = compile(c, object, root.Selections); err != nil {
		return nil, err
	}
	c.note(")")
	p.key, p.caughtUp = string(c.key), c.caughtUp
	return p, nil
}

// Field is the root field of a subscription whose only one is runEvents or sessionEvents; else the error is ErrUnknown.
func Field(op *graphql.OperationContext) (root graphql.CollectedField, err error) {
	if root, err = Root(op); err == nil && root.Name != RunEvents && root.Name != SessionEvents {
		err = ErrUnknown
	}
	return root, err
}

// Root is the only root field of a subscription; the error is ErrUnknown where there are others, or none.
func Root(op *graphql.OperationContext) (root graphql.CollectedField, err error) {
	if op.Operation == nil || op.Operation.Operation != ast.Subscription {
		return root, ErrUnknown
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrUnknown, p)
		}
	}()
	fields := graphql.CollectFields(op, op.Operation.SelectionSet, []string{"Subscription"})
	if len(fields) != 1 || len(fields[0].Deferrables) > 0 {
		return root, ErrUnknown
	}
	return fields[0], nil
}

// step writes one field of an object: what is before it, and its value.
type step[V any] struct {
	key   string // of the first field with {, of the others with a comma
	value func(w *writer, v V)
}

// run writes an object.
func run[V any](w *writer, steps []step[V], v V) {
	if len(steps) == 0 {
		w.b = append(w.b, '{')
	}
	for i := range steps {
		w.b = append(w.b, steps[i].key...)
		steps[i].value(w, v)
	}
	w.b = append(w.b, '}')
}

// object is what is known of an object type of the schema: its name, the interfaces, and how its fields are written.
type object[V any] struct {
	name       string
	interfaces []string
	leaves     map[string]func(w *writer, v V)
	composites map[string]func(c *compiler, set ast.SelectionSet) (func(w *writer, v V), error)
}

type compiler struct {
	op       *graphql.OperationContext
	key      []byte
	caughtUp bool
}

func (c *compiler) note(parts ...string) {
	for _, p := range parts {
		c.key = append(c.key, p...)
	}
}

// compile makes the steps of an object out of its selection, as the executor collects it: the first of several fields with
// one alias is written.
func compile[V any](c *compiler, o *object[V], set ast.SelectionSet) ([]step[V], error) {
	fields := graphql.CollectFields(c.op, set, append([]string{o.name}, o.interfaces...))
	steps := make([]step[V], 0, len(fields))
	seen := make(map[string]bool, len(fields))
	c.note(o.name, "{")
	for _, f := range fields {
		if len(f.Deferrables) > 0 {
			return nil, fmt.Errorf("%w: @defer", ErrUnknown)
		}
		if seen[f.Alias] {
			continue
		}
		seen[f.Alias] = true
		c.note(f.Alias, ":", f.Name)
		s := step[V]{key: "," + quoted(f.Alias) + ":"}
		if len(steps) == 0 {
			s.key = "{" + s.key[1:]
		}
		if write, ok := o.leaves[f.Name]; ok {
			s.value = write
			c.caughtUp = c.caughtUp || f.Name == "caughtUp"
		} else if inner, ok := o.composites[f.Name]; ok {
			var err error
			if s.value, err = inner(c, f.Selections); err != nil {
				return nil, err
			}
		} else if f.Name == "__typename" {
			name := quoted(o.name)
			s.value = func(w *writer, _ V) { w.raw(name) }
		} else {
			return nil, fmt.Errorf("%w: %s.%s", ErrUnknown, o.name, f.Name)
		}
		c.note(" ")
		steps = append(steps, s)
	}
	c.note("}")
	return steps, nil
}

// events makes the field of a batch's events: each is written by the steps of its type.
func events(c *compiler, set ast.SelectionSet) (func(*writer, *Batch), error) {
	plans := make([][]step[*event.Event], len(eventObjects))
	for i, o := range eventObjects {
		var err error
		if plans[i], err = compile(c, o.object, set); err != nil {
			return nil, err
		}
	}
	return func(w *writer, b *Batch) {
		w.b = append(w.b, '[')
		for i := range b.Events {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			e := &b.Events[i]
			at, known := eventIndex[e.Type()]
			if !known {
				w.fail("event %d has type %s", e.Sequence, strconv.Quote(string(e.Type())))
				return
			}
			run(w, plans[at], e)
		}
		w.b = append(w.b, ']')
	}, nil
}
