package event

import (
	"fmt"
	"reflect"
	"strings"
)

// CodeEventInvalid is the code of the run.error that ends a run whose stream broke a rule.
const CodeEventInvalid = "harness_event_invalid"

// InvalidError says which rule of the state machine, or which bound, an event breaks. It names fields and sizes but
// never holds a value of the event, so it may be logged.
type InvalidError struct {
	Rule  int    // rule of the state machine, 1 to 5 (docs/events.md); 0 is a bound or the form of a field
	Code  string // stable, for instance "tool_not_started"
	Field string // path of the field in the event's data, or "namespace"; empty where it is not about one field
	Shape string // type, field names and lengths of the event
}

func (e *InvalidError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "invalid event: rule %d: %s", e.Rule, e.Code)
	if e.Field != "" {
		fmt.Fprintf(&b, ": %s", e.Field)
	}
	if e.Shape != "" {
		fmt.Fprintf(&b, " [%s]", e.Shape)
	}
	return b.String()
}

// shapeOf describes an event by its type, its fields and their lengths, without their values.
func shapeOf(e Event) string {
	d, ok := plainData(e.Data)
	if !ok {
		return "no known type"
	}
	var b strings.Builder
	b.WriteString(string(d.Type()))
	if len(e.Namespace) > 0 {
		fmt.Fprintf(&b, " ns=%d", len(e.Namespace))
	}
	v := reflect.ValueOf(d)
	for f, field := range v.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch field.Kind() {
		case reflect.String:
			fmt.Fprintf(&b, " %s=%dB", name, field.Len())
		case reflect.Slice, reflect.Map:
			fmt.Fprintf(&b, " %s[%d]", name, field.Len())
		default:
			if !field.IsZero() {
				fmt.Fprintf(&b, " %s", name)
			}
		}
	}
	return b.String()
}
