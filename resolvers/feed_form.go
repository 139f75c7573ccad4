package resolvers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/99designs/gqlgen/graphql"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/resolvers/encode"
)

// form is how a delivery is written. Equal forms are one, so that deliveries are shared.
type form struct {
	plan *encode.Plan // nil: canonical
	mark string       // of the canonical form: what its ids end in, see Root.HistoryMark
}

// historyMark makes the end of ids from a log's epoch.
func historyMark(logEpoch string) string {
	if logEpoch == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(logEpoch))
	return "." + hex.EncodeToString(sum[:4])
}

// write appends a delivery to dst.
func (f *form) write(dst []byte, b *encode.Batch) ([]byte, error) {
	if f.plan != nil {
		return f.plan.Append(dst, b)
	}
	for _, e := range b.Events {
		raw, err := event.MarshalWire(e)
		if err != nil {
			return nil, err
		}
		dst = fmt.Appendf(dst, "id: %d%s\nevent: %s\ndata: ", e.Sequence, f.mark, e.Type())
		dst = append(append(dst, raw...), "\n\n"...)
	}
	return dst, nil
}

// saysCaughtUp reports whether the delivery shows that.
func (f *form) saysCaughtUp() bool { return f.plan != nil && f.plan.SelectsCaughtUp() }

const (
	maxForms     = 512     // that are remembered; what is open keeps its own
	maxFormQuery = 8 << 10 // bytes of a document that is remembered
)

// forms remembers compiled selections: by the text of the operation, and by what they select.
type forms struct {
	mu        sync.Mutex
	byText    map[[sha256.Size]byte]*form
	byContent map[string]*form
}

// of is the form of an operation. The error is encode.ErrUnknown.
func (fs *forms) of(op *graphql.OperationContext) (*form, error) {
	cached := op.RawQuery != "" && len(op.RawQuery) <= maxFormQuery
	var text [sha256.Size]byte
	if cached {
		text = formText(op)
		fs.mu.Lock()
		known := fs.byText[text]
		fs.mu.Unlock()
		if known != nil {
			return known, nil
		}
	}
	plan, err := encode.Compile(op)
	if err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.byContent[plan.Key()]
	if f == nil {
		f = &form{plan: plan}
		if fs.byContent == nil || len(fs.byContent) >= maxForms {
			fs.byContent = map[string]*form{}
		}
		fs.byContent[plan.Key()] = f
	}
	if cached {
		if fs.byText == nil || len(fs.byText) >= maxForms {
			fs.byText = map[[sha256.Size]byte]*form{}
		}
		fs.byText[text] = f
	}
	return f, nil
}

// formText names what the form follows from: the document, the operation's name, and the variables that @skip and
// @include may read.
func formText(op *graphql.OperationContext) [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %s %d %s", len(op.RawQuery), op.RawQuery, len(op.Operation.Name), op.Operation.Name)
	for _, name := range slices.Sorted(maps.Keys(op.Variables)) {
		if v, ok := op.Variables[name].(bool); ok {
			_, _ = fmt.Fprintf(h, " %s %t", name, v)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}
