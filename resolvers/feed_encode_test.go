package resolvers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/vektah/gqlparser/v2/ast"
	"pgregory.net/rapid"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/graph"
	"github.com/harness-engine/harness-engine/graph/model"
	"github.com/harness-engine/harness-engine/resolvers/encode"
)

// everyData has one value of each event type.
var everyData = []event.Data{
	event.RunStarted{}, event.RunRecovered{}, event.TextStarted{}, event.TextDelta{}, event.TextFinished{},
	event.ReasoningStarted{}, event.ReasoningDelta{}, event.ReasoningFinished{}, event.ToolStarted{},
	event.ToolArgumentsDelta{}, event.ToolFinished{}, event.ToolError{}, event.InterruptRequested{},
	event.NamespaceEntered{}, event.NamespaceExited{}, event.PlanUpdated{}, event.Warning{}, event.UsageUpdated{},
	event.RunFinished{}, event.RunInterrupted{}, event.RunCancelled{}, event.RunError{},
}

// choose is where random choices come from.
type choose func(n int) int

var awkward = []string{
	"", "x", "plain text of a few words", "\"quoted\" \\ and\nlines\r\n\ttabs", "<b>&amp;</b>", "\u2028\u2029\u00e9\U0001F600", "\x00\x01\x1f\x7f",
	"\xff\xfe broken", strings.Repeat("long ", 50), "null", "{}",
}

func (c choose) text() string { return awkward[c(len(awkward))] }

func (c choose) raw() json.RawMessage {
	return []json.RawMessage{nil, json.RawMessage(`{}`), json.RawMessage(`{"a":[1,2.5,"<\u0001>"],"b":null}`)}[c(3)]
}

// fill sets every field of the value.
func (c choose) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case json.RawMessage:
		v.Set(reflect.ValueOf(c.raw()))
		return
	case time.Time:
		v.Set(reflect.ValueOf(c.time()))
		return
	case event.InterruptKind:
		v.Set(reflect.ValueOf([]event.InterruptKind{event.InterruptForm, event.InterruptApproval}[c(2)]))
		return
	case event.Durability:
		v.Set(reflect.ValueOf([]event.Durability{event.DurabilityNone, event.DurabilityLocal, event.DurabilityCommitted, event.DurabilityUncertain}[c(4)]))
		return
	case map[string]any:
		if c(2) == 0 {
			v.Set(reflect.ValueOf(map[string]any{"z": c.text(), "a": int64(c(1000)), "m": 1.5, "<": nil, "b": c(2) == 0}))
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(c.text())
	case reflect.Bool:
		v.SetBool(c(2) == 0)
	case reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 12345, math.MaxInt64}[c(5)])
	case reflect.Float64:
		v.SetFloat([]float64{0, 1, 0.1, 1e21, 1e20, 1e-7, 123456789, 1234567.5, 3e-5, math.MaxFloat64, -2.5}[c(11)])
	case reflect.Pointer:
		if c(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			c.fill(v.Elem())
		}
	case reflect.Slice:
		n := c(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			c.fill(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			c.fill(v.Field(i))
		}
	default:
		panic("no value for " + v.Type().String())
	}
}

func (c choose) time() time.Time {
	at := time.Date(2026, 11, 30, 23, 59, 58, 0, time.UTC).Add(time.Duration(c(3000)) * time.Millisecond)
	if c(4) == 0 {
		at = at.In(time.FixedZone("", 3600))
	}
	return at
}

func (c choose) event(seq int64) event.Event {
	data := reflect.New(reflect.TypeOf(everyData[c(len(everyData))])).Elem()
	c.fill(data)
	e := event.Event{RunID: "run_" + c.text(), SessionID: "ses_1", Sequence: seq, Time: c.time()}
	e.Data, _ = data.Interface().(event.Data)
	for range c(3) {
		e.Namespace = append(e.Namespace, c.text())
	}
	return e
}

// query writes a random selection of a root field.
type query struct {
	choose
	schema    *ast.Schema
	fragments []string
	vars      map[string]any
	left      int // selections that may still be written: validation compares all with all
}

func (q *query) directives() string {
	switch q.choose(8) {
	case 0:
		return " @include(if: true)"
	case 1:
		return " @skip(if: true)"
	case 2:
		return " @include(if: $yes)"
	case 3:
		return " @skip(if: $maybe)"
	default:
		return ""
	}
}

func (q *query) set(typ string, depth int) string {
	def := q.schema.Types[typ]
	var b strings.Builder
	b.WriteString(" {")
	wrote := false
	for range 1 + q.choose(6) {
		if q.left--; q.left < 0 {
			break
		}
		switch q.choose(7) {
		case 0:
			b.WriteString(" " + []string{"", "kind_of: "}[q.choose(2)] + "__typename")
			wrote = true
		case 1, 2:
			if depth > 3 {
				continue
			}
			at := typ
			if possible := q.schema.PossibleTypes[typ]; len(possible) > 0 && q.choose(4) > 0 {
				at = possible[q.choose(len(possible))].Name
			} else if len(def.Interfaces) > 0 && q.choose(4) == 0 {
				at = def.Interfaces[0]
			}
			if q.choose(3) == 0 {
				name := fmt.Sprintf("F%d", len(q.fragments))
				q.fragments = append(q.fragments, "")
				q.fragments[len(q.fragments)-1] = "fragment " + name + " on " + at + q.set(at, depth+1)
				for range 1 + q.choose(2) {
					b.WriteString(" ..." + name + q.directives())
				}
			} else {
				b.WriteString(" ... on " + at + q.directives() + q.set(at, depth+1))
			}
			wrote = true
		default:
			f := def.Fields[q.choose(len(def.Fields))]
			if strings.HasPrefix(f.Name, "__") {
				continue
			}
			alias := []string{"", "", typ + "_" + f.Name + ": "}[q.choose(3)]
			inner := ""
			if t := q.schema.Types[f.Type.Name()]; t.IsCompositeType() {
				inner = q.set(t.Name, depth+1)
			}
			b.WriteString(" " + alias + f.Name + q.directives() + inner)
			wrote = true
		}
	}
	if !wrote {
		b.WriteString(" __typename")
	}
	return b.String() + " }"
}

func (q *query) document() string {
	root, args, typ := encode.RunEvents, `(runId: "run_1")`, "RunEventBatch"
	if q.choose(3) == 0 {
		root, args, typ = encode.SessionEvents, `(sessionId: "ses_1")`, "SessionEventBatch"
	}
	alias := []string{"", "batch: "}[q.choose(2)]
	// Without a directive: a subscription has to have its root field.
	body := "subscription Q($yes: Boolean! = true, $maybe: Boolean!) { " + alias + root + args + q.set(typ, 0) + " }\n"
	q.vars = map[string]any{"maybe": q.choose(2) == 0}
	if q.choose(2) == 0 {
		q.vars["yes"] = q.choose(2) == 0
	}
	// The variables are always used, as validation demands.
	return strings.Replace(body, args+" {", args+" { y: through @include(if: $yes) m: caughtUp @skip(if: $maybe)", 1) + strings.Join(q.fragments, "\n")
}

// single answers every subscription with one batch.
type single struct {
	*Root
	batch encode.Batch
}

func (s single) Subscription() graph.SubscriptionResolver { return s }

func (s single) RunEvents(context.Context, string, int64, *string) (<-chan *model.RunEventBatch, error) {
	events, err := eventModels(s.batch.Events)
	out := make(chan *model.RunEventBatch, 1)
	out <- &model.RunEventBatch{Events: events, Through: s.batch.Through, CaughtUp: s.batch.CaughtUp}
	return out, err
}

func (s single) SessionEvents(context.Context, string, *string) (<-chan *model.SessionEventBatch, error) {
	events, err := eventModels(s.batch.Events)
	out := make(chan *model.SessionEventBatch, 1)
	b := s.batch
	out <- &model.SessionEventBatch{RunID: b.RunID, Ord: b.Ord, Epoch: b.Epoch, Events: events, Through: b.Cursor, CaughtUp: b.CaughtUp}
	return out, err
}

func (single) SessionChanged(context.Context) (<-chan *model.Session, error) { return nil, nil }
func (single) CatalogChanged(context.Context) (<-chan *model.CatalogRevision, error) {
	return nil, nil
}

// executed is what the executor answers, and what the compiled selection writes.
func executed(batch encode.Batch, text string, vars map[string]any) (want, got string, err error) {
	cfg := graph.Config{Resolvers: single{&Root{}, batch}}
	cfg.Directives.Authz = func(ctx context.Context, _ any, next graphql.Resolver, _ string, _ model.AuthzType, _, _, _ *string) (any, error) {
		return next(ctx)
	}
	exec := executor.New(graph.NewExecutableSchema(cfg))
	exec.SetRecoverFunc(func(_ context.Context, p any) error { return fmt.Errorf("panic: %v", p) })
	ctx := graphql.StartOperationTrace(context.Background())
	op, errs := exec.CreateOperationContext(ctx, &graphql.RawParams{Query: text, Variables: vars})
	if len(errs) > 0 {
		return "", "", errInvalid
	}
	responses, ctx := exec.DispatchOperation(graphql.WithOperationContext(ctx, op), op)
	resp := responses(ctx)
	if resp == nil || len(resp.Errors) > 0 {
		return "", "", fmt.Errorf("executed: %+v", resp)
	}
	plan, err := encode.Compile(op)
	if err != nil {
		return "", "", err
	}
	out, err := plan.Append([]byte("before"), &batch)
	if err != nil {
		return "", "", err
	}
	if withCaughtUp := batch; !plan.SelectsCaughtUp() {
		withCaughtUp.CaughtUp = !batch.CaughtUp
		if same, _ := plan.Append([]byte("before"), &withCaughtUp); string(same) != string(out) {
			return "", "", errors.New("caughtUp makes a difference that is not told")
		}
	}
	return `{"data":` + string(resp.Data) + `}`, strings.TrimPrefix(string(out), "before"), nil
}

var errInvalid = errors.New("not a valid operation")

func compare(c choose) (text string, err error) {
	batch := encode.Batch{RunID: "run_" + c.text(), CaughtUp: c(2) == 0, Ord: int64(c(9)), Epoch: int64(c(9)), Cursor: c.text()}
	for i := range c(12) {
		batch.Through = int64(i) + 1
		batch.Events = append(batch.Events, c.event(batch.Through))
	}
	q := &query{left: 50, choose: c, schema: (&Root{}).Schema().Schema()}
	text = q.document()
	want, got, err := executed(batch, text, q.vars)
	if err == nil && want != got {
		err = fmt.Errorf("%s %v\nexecuted %s\ncompiled %s", text, q.vars, want, got)
	}
	return text, err
}

// A compiled selection writes what the executor writes, whatever is selected of whatever events.
func TestCompiledSelectionsWriteWhatTheExecutorWrites(t *testing.T) {
	valid, all := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		text, err := compare(func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "") })
		all++
		if errors.Is(err, errInvalid) {
			return
		}
		if err != nil {
			rt.Fatalf("%s: %v", text, err)
		}
		valid++
	})
	if valid*3 < all {
		t.Errorf("only %d of %d operations were valid", valid, all)
	}
}

func FuzzCompiledSelections(f *testing.F) {
	for _, seed := range []string{"", "a few bytes to begin with, which choose", strings.Repeat("\x00\x01\x02\x03\xfe\x7f", 60)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := func(n int) int {
			if len(raw) == 0 {
				return 0
			}
			b := int(raw[0])
			if raw = raw[1:]; n > 256 && len(raw) > 0 {
				b, raw = b<<8|int(raw[0]), raw[1:]
			}
			return b % n
		}
		if _, err := compare(c); err != nil && !errors.Is(err, errInvalid) {
			t.Fatal(err)
		}
	})
}

// Every field of every type that a batch can show is known to the compiler, and none of them depends on the viewer.
func TestEveryFieldOfEventsIsCompiled(t *testing.T) {
	schema := (&Root{}).Schema().Schema()
	var all func(typ string) string
	seen := map[string]bool{}
	all = func(typ string) string {
		seen[typ] = true
		var b strings.Builder
		b.WriteString("{ __typename")
		def := schema.Types[typ]
		for _, possible := range schema.PossibleTypes[typ] {
			if possible.Name != typ {
				b.WriteString(" ... on " + possible.Name + " " + all(possible.Name))
			}
		}
		for _, f := range def.Fields {
			if f.Directives.ForName("authz") != nil {
				t.Errorf("%s.%s depends on who looks", typ, f.Name)
			}
			b.WriteString(" " + typ + "_" + f.Name + ": " + f.Name)
			if schema.Types[f.Type.Name()].IsCompositeType() {
				b.WriteString(" " + all(f.Type.Name()))
			}
		}
		return b.String() + " }"
	}
	var batch encode.Batch
	for i, d := range everyData {
		full := choose(func(n int) int { return n - 1 })
		v := reflect.New(reflect.TypeOf(d)).Elem()
		full.fill(v)
		e := event.Event{RunID: "run_1", Sequence: int64(i) + 1, Time: full.time(), Namespace: []string{"a", "b"}}
		e.Data, _ = v.Interface().(event.Data)
		batch.Events = append(batch.Events, e)
	}
	for root, typ := range map[string]string{`runEvents(runId: "r")`: "RunEventBatch", `sessionEvents(sessionId: "s")`: "SessionEventBatch"} {
		want, got, err := executed(batch, "subscription { "+root+" "+all(typ)+" }", nil)
		if err != nil || want != got {
			t.Errorf("%v\nexecuted %s\ncompiled %s", err, want, got)
		}
	}
	for _, possible := range schema.PossibleTypes["RunEvent"] {
		if !seen[possible.Name] {
			t.Errorf("%s was not shown", possible.Name)
		}
	}
	if slices.Contains(everyData, nil) || len(everyData) != len(schema.PossibleTypes["RunEvent"]) {
		t.Errorf("%d types of events, %d in the schema", len(everyData), len(schema.PossibleTypes["RunEvent"]))
	}
}

// What cannot be compiled is executed.
func TestOnlyPlainSelectionsAreCompiled(t *testing.T) {
	schema := (&Root{}).Schema()
	exec := executor.New(schema)
	for _, text := range []string{
		`{ viewer { subject } }`,
		`subscription { sessionChanged { id } }`,
		`subscription { ... @defer { runEvents(runId: "r") { through } } }`,
		`subscription { runEvents(runId: "r") { ... @defer { through } } }`,
		`subscription { runEvents(runId: "r") { events { sequence ... on TextDeltaEvent @defer { delta } } } }`,
	} {
		ctx := graphql.StartOperationTrace(context.Background())
		op, errs := exec.CreateOperationContext(ctx, &graphql.RawParams{Query: text})
		if len(errs) > 0 {
			t.Logf("%s: %v", text, errs)
			continue
		}
		if _, err := encode.Compile(op); !errors.Is(err, encode.ErrUnknown) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	const text = `subscription { runEvents(runId: "run_1") { through caughtUp events { __typename runId sequence time namespace type
		... on TextDeltaEvent { messageId delta } ... on ToolStartedEvent { toolCallId name arguments } ... on RunFinishedEvent { stopReason } } } }`
	batch := encode.Batch{RunID: "run_1", Through: 256}
	for i := range 256 {
		batch.Events = append(batch.Events, event.Event{
			RunID: "run_01m8pypk4j50821ea7rvcdb6jh", Sequence: int64(i) + 1, Time: time.Now(),
			Data: event.TextDelta{MessageID: "msg_01m8pypk4j50821ea7rvcdb6jh", Delta: "some tokens of text "},
		})
	}
	schema := graph.Config{Resolvers: single{&Root{}, batch}}
	exec := executor.New(graph.NewExecutableSchema(schema))
	ctx := graphql.StartOperationTrace(context.Background())
	op, errs := exec.CreateOperationContext(ctx, &graphql.RawParams{Query: text})
	if len(errs) > 0 {
		b.Fatal(errs)
	}
	plan, err := encode.Compile(op)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("compiled", func(b *testing.B) {
		var buf []byte
		b.ReportAllocs()
		for b.Loop() {
			if buf, err = plan.Append(buf[:0], &batch); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch.Events)), "ns/event")
	})
	b.Run("compile", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := encode.Compile(op); err != nil {
				b.Fatal(err)
			}
		}
	})
}
