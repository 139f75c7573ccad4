package event

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
)

// The words that fields with a closed set of values may hold.
var (
	wordsRole       = []string{"assistant"}
	wordsOutcome    = []string{"success", "error", "cancelled"}
	wordsRunOutcome = []string{"success"}
	wordsStop       = []string{"end_turn", "max_tokens", "max_turn_requests", "refusal"}
	wordsStatus     = []string{"pending", "in_progress", "completed"}
	wordsPriority   = []string{"", "high", "medium", "low"}
	wordsField      = []string{"string", "number", "boolean", "choice"}
	wordsDecision   = []string{"approve", "edit", "reject"}
	wordsInterrupt  = []InterruptKind{InterruptForm, InterruptApproval}
	wordsCancel     = []CancelReason{CancelClientRequest, CancelSuperseded, CancelShutdown, CancelDeadline, CancelSessionCleared}
	wordsIsolation  = []Isolation{"", IsolationNone}
	// A driver may leave side effects and thread state to the engine.
	wordsSideEffects = []SideEffects{"", SideEffectsNone, SideEffectsPossible, SideEffectsKnown}
	wordsDurability  = []Durability{"", DurabilityNone, DurabilityLocal, DurabilityCommitted, DurabilityUncertain}
	wordsCategory    = []Category{
		CategoryConfiguration, CategoryAuthentication, CategoryAuthorization, CategoryCapacity, CategoryThrottled,
		CategoryUnavailable, CategoryTimeout, CategoryProtocol, CategoryPersistence, CategoryCancelled, CategoryInternal,
	}
)

// cleaner applies the bounds to one event. It keeps the first violation and goes on, so that callers stay flat.
type cleaner struct {
	b   Bounds
	err *InvalidError
}

func (c *cleaner) refuse(code, field string) {
	if c.err == nil {
		c.err = &InvalidError{Code: code, Field: field}
	}
}

// id checks an id, a name or a code, which must be there.
func (c *cleaner) id(field, s string) {
	if s == "" {
		c.refuse("missing", field)
	}
	c.optional(field, s)
}

// optional checks an id, a name or a code that may be absent.
func (c *cleaner) optional(field, s string) {
	switch {
	case len(s) > c.b.IDBytes:
		c.refuse("too_long", field)
	case !isPlain(s, ""):
		c.refuse("control_character", field)
	}
}

// text makes display text safe and cuts it.
func (c *cleaner) text(s string, limit int) string { return cutText(cleanText(s), limit) }

func (c *cleaner) count(field string, n, most int) {
	if n > most {
		c.refuse("too_many", field)
	}
}

func (c *cleaner) notNegative(field string, n int64) {
	if n < 0 {
		c.refuse("negative", field)
	}
}

func word[T ~string](c *cleaner, field string, s T, allowed []T) {
	if !slices.Contains(allowed, s) {
		c.refuse("unknown_value", field)
	}
}

func (c *cleaner) namespace(ns []string) {
	if len(ns) > c.b.NamespaceDepth {
		c.refuse("too_deep", "namespace")
		return
	}
	for _, id := range ns {
		c.id("namespace", id)
	}
}

// object returns the canonical form of a JSON object; nil stays nil.
func (c *cleaner) object(field string, raw json.RawMessage, limit int) json.RawMessage {
	if raw == nil {
		return nil
	}
	if len(raw) > 2*limit { // white space may go, but not without end
		c.refuse("too_long", field)
		return raw
	}
	out, err := canonicalObject(raw)
	switch {
	case err != nil:
		c.refuse("malformed_json", field)
	case len(out) > limit:
		c.refuse("too_long", field)
	}
	return out
}

func (c *cleaner) thread(t ThreadState) {
	word(c, "thread.durability", t.Durability, wordsDurability)
	c.notNegative("thread.revision", t.Revision)
}

// details copies a warning's details: scalars only, numbers as int64 or finite float64.
func (c *cleaner) details(in map[string]any) map[string]any {
	c.count("details", len(in), c.b.DetailKeys)
	if len(in) == 0 || c.err != nil {
		return nil
	}
	out := make(map[string]any, len(in))
	for k, v := range in {
		c.id("details", k)
		out[k] = c.scalar(v)
	}
	return out
}

func (c *cleaner) scalar(v any) any {
	if n, ok := v.(json.Number); ok {
		s := scanner{src: []byte(n)}
		if s.number() != nil || s.end() != nil {
			c.refuse("not_a_scalar", "details")
			return nil
		}
		if f, ok := plainNumber(n).(float64); !ok || !math.IsInf(f, 0) {
			return plainNumber(n)
		}
		c.refuse("not_a_finite_number", "details")
		return nil
	}
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Invalid:
		return nil
	case reflect.String:
		return c.text(rv.String(), c.b.DetailBytes)
	case reflect.Bool:
		return rv.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return rv.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if rv.Uint() <= math.MaxInt64 {
			return int64(rv.Uint())
		}
		return float64(rv.Uint())
	case reflect.Float32, reflect.Float64:
		if f := rv.Float(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
		c.refuse("not_a_finite_number", "details")
		return nil
	}
	c.refuse("not_a_scalar", "details")
	return nil
}
