package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// timeLayout is RFC 3339 in UTC with exactly three digits of a second.
const timeLayout = "2006-01-02T15:04:05.000Z"

// dataCodec is what is known about the data of one event type.
type dataCodec struct {
	goType reflect.Type
	schema *schema
	decode func(raw []byte) (Data, error)
}

func codecFor[T Data]() dataCodec {
	return dataCodec{
		goType: reflect.TypeFor[T](),
		schema: schemaOf(reflect.TypeFor[T]()),
		decode: func(raw []byte) (Data, error) {
			var d T
			if err := json.Unmarshal(raw, &d); err != nil {
				return nil, err
			}
			return d, nil
		},
	}
}

var codecs = map[Type]dataCodec{
	TypeRunStarted:         codecFor[RunStarted](),
	TypeRunRecovered:       codecFor[RunRecovered](),
	TypeTextStarted:        codecFor[TextStarted](),
	TypeTextDelta:          codecFor[TextDelta](),
	TypeTextFinished:       codecFor[TextFinished](),
	TypeReasoningStarted:   codecFor[ReasoningStarted](),
	TypeReasoningDelta:     codecFor[ReasoningDelta](),
	TypeReasoningFinished:  codecFor[ReasoningFinished](),
	TypeToolStarted:        codecFor[ToolStarted](),
	TypeToolArgumentsDelta: codecFor[ToolArgumentsDelta](),
	TypeToolFinished:       codecFor[ToolFinished](),
	TypeToolError:          codecFor[ToolError](),
	TypeInterruptRequested: codecFor[InterruptRequested](),
	TypeNamespaceEntered:   codecFor[NamespaceEntered](),
	TypeNamespaceExited:    codecFor[NamespaceExited](),
	TypePlanUpdated:        codecFor[PlanUpdated](),
	TypeWarning:            warningCodec(),
	TypeUsageUpdated:       codecFor[UsageUpdated](),
	TypeRunFinished:        codecFor[RunFinished](),
	TypeRunInterrupted:     codecFor[RunInterrupted](),
	TypeRunCancelled:       codecFor[RunCancelled](),
	TypeRunError:           codecFor[RunError](),
}

// Known reports whether t is one of the types of this version.
func (t Type) Known() bool {
	_, ok := codecs[t]
	return ok
}

// EngineOnly reports whether only the engine may write events of this type: a driver that yields one is wrong.
func (t Type) EngineOnly() bool { return t == TypeRunStarted || t == TypeRunRecovered }

func warningCodec() dataCodec {
	c := codecFor[Warning]()
	c.decode = decodeWarning
	return c
}

// decodeWarning keeps whole numbers whole: as float64 those above 2^53 would change.
func decodeWarning(raw []byte) (Data, error) {
	var w Warning
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&w); err != nil {
		return nil, err
	}
	for k, v := range w.Details {
		if n, ok := v.(json.Number); ok {
			w.Details[k] = plainNumber(n)
		}
	}
	return w, nil
}

// plainNumber is n as int64 where it is written as one and fits, else as float64.
func plainNumber(n json.Number) any {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil && n != "-0" {
		return i
	}
	f, _ := strconv.ParseFloat(n.String(), 64) // the scanner has refused what does not fit
	return f
}

// Encode returns the stored form of e: compact JSON
//
//	{"v":1,"type":"text.delta","time":"2026-01-02T15:04:05.678Z","ns":["child"],"data":{...}}
//
// The run, the session and the sequence are not in it: the chunk carries them. A zero time and an empty namespace
// are left out. Encode checks no bounds; the Validator does.
func Encode(e Event) ([]byte, error) { return appendEvent(nil, e) }

func appendEvent(dst []byte, e Event) ([]byte, error) {
	d, ok := plainData(e.Data)
	if !ok {
		return nil, errors.New("failed to encode event: no data of a known type")
	}
	dst = append(dst, `{"v":1,"type":"`...)
	dst = append(dst, d.Type()...)
	dst = append(dst, '"')
	if !e.Time.IsZero() {
		t := e.Time.UTC()
		if y := t.Year(); y < 1 || y > 9999 {
			return nil, fmt.Errorf("failed to encode event %s: year %d is outside of RFC 3339", d.Type(), y)
		}
		dst = append(dst, `,"time":"`...)
		dst = t.AppendFormat(dst, timeLayout)
		dst = append(dst, '"')
	}
	var err error
	if len(e.Namespace) > 0 {
		dst = append(dst, `,"ns":`...)
		if dst, err = appendJSON(dst, e.Namespace); err != nil {
			return nil, fmt.Errorf("failed to encode event %s: %w", d.Type(), err)
		}
	}
	dst = append(dst, `,"data":`...)
	if dst, err = appendJSON(dst, withoutNilLists(d)); err != nil {
		return nil, fmt.Errorf("failed to encode event %s: %w", d.Type(), err)
	}
	return append(dst, '}'), nil
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// appendJSON appends v as compact JSON; unlike json.Marshal it leaves <, > and & as they are.
func appendJSON(dst []byte, v any) ([]byte, error) {
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...), nil
}

// plainData returns d as one of the structs of this package, not as a pointer to one.
func plainData(d Data) (Data, bool) {
	if d == nil {
		return nil, false
	}
	if v := reflect.ValueOf(d); v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil, false
		}
		inner, ok := v.Elem().Interface().(Data)
		if !ok {
			return nil, false
		}
		d = inner
	}
	return d, reflect.TypeOf(d) == codecs[d.Type()].goType
}

// withoutNilLists makes lists that must be present empty instead of nil, which would be written as null.
func withoutNilLists(d Data) Data {
	switch d := d.(type) {
	case PlanUpdated:
		if d.Entries == nil {
			d.Entries = []PlanEntry{}
		}
		return d
	case InterruptRequested:
		d.Calls = slices.Clone(d.Calls)
		for i := range d.Calls {
			if d.Calls[i].Allowed == nil {
				d.Calls[i].Allowed = []string{}
			}
		}
		return d
	}
	return d
}

// Decode reads the stored form. It is strict: an unknown type or version, an unknown, duplicate or differently cased
// field at any level, a null in a typed field, invalid UTF-8, nesting above 64 levels and trailing data are refused.
// RunID, SessionID and Sequence stay empty. Errors name the field and hold no value.
func Decode(raw []byte) (Event, error) {
	e, n, err := decodePrefix(raw)
	if err == nil {
		s := scanner{src: raw, pos: n}
		err = s.end()
	}
	if err != nil {
		return Event{}, fmt.Errorf("failed to decode event: %w", err)
	}
	return e, nil
}

// decodePrefix reads the event that raw begins with and returns its length.
func decodePrefix(raw []byte) (Event, int, error) {
	var env envelope
	n, err := env.scan(raw)
	if err != nil {
		return Event{}, 0, err
	}
	e, err := env.event()
	return e, n, err
}

// event decodes the scanned parts.
func (env *envelope) event() (Event, error) {
	var e Event
	if env.time != nil {
		text := strings.Trim(string(env.time), `"`)
		t, err := time.Parse(timeLayout, text)
		if err != nil || t.Format(timeLayout) != text {
			return Event{}, errors.New("time: not RFC 3339 in UTC with milliseconds")
		}
		e.Time = t
	}
	if env.ns != nil {
		if err := json.Unmarshal(env.ns, &e.Namespace); err != nil {
			return Event{}, fmt.Errorf("ns: %w", errJSONWrongType)
		}
		if len(e.Namespace) == 0 {
			e.Namespace = nil
		}
	}
	d, err := env.codec.decode(env.data)
	if err != nil {
		return Event{}, fmt.Errorf("data: %w", safeJSONError(err))
	}
	e.Data = d
	return e, nil
}

// envelope holds the raw parts of one stored event; every slice is part of the scanned text.
type envelope struct {
	codec          dataCodec
	time, ns, data []byte
}

var namespaceSchema = &schema{kind: kindArray, elem: scalarSchema}

// scan takes the envelope apart and returns the length of the event; what follows it is the caller's to judge.
func (env *envelope) scan(raw []byte) (int, error) {
	s := scanner{src: raw}
	if err := s.expect('{'); err != nil {
		return 0, err
	}
	s.depth = 1
	var version, typ []byte
	type part struct {
		name string
		into *[]byte
	}
	parts := [...]part{{"v", &version}, {"type", &typ}, {"time", &env.time}, {"ns", &env.ns}, {"data", &env.data}}
	known, checked := false, false
	for {
		if c, err := s.peek(); err != nil {
			return 0, err
		} else if c != '"' {
			return 0, errJSONSyntax
		}
		key, err := s.key()
		if err != nil {
			return 0, err
		}
		if err := s.expect(':'); err != nil {
			return 0, err
		}
		i := slices.IndexFunc(parts[:], func(p part) bool { return p.name == string(key) })
		if i < 0 {
			return 0, fmt.Errorf("unknown field %s", quoteKey(key))
		}
		if *parts[i].into != nil {
			return 0, fmt.Errorf("duplicate field %s", quoteKey(key))
		}
		sc := scalarSchema
		switch parts[i].name {
		case "ns":
			sc = namespaceSchema
		case "data":
			// Where the type is not known yet, the data is scanned again below.
			if sc = freeSchema; known {
				sc, checked = env.codec.schema, true
			}
		}
		s.space()
		start := s.pos
		if err := s.value(sc); err != nil {
			return 0, fmt.Errorf("%s: %w", parts[i].name, err)
		}
		*parts[i].into = raw[start:s.pos]
		if parts[i].name == "type" {
			if env.codec, known = codecs[Type(strings.Trim(string(typ), `"`))]; !known {
				return 0, errors.New("type: unknown event type")
			}
		}
		more, err := s.more('}')
		if err != nil {
			return 0, err
		}
		if !more {
			break
		}
	}
	switch {
	case string(version) != strconv.Itoa(Version):
		return 0, errors.New("v: unknown version")
	case !known:
		return 0, errors.New("type: missing")
	case env.data == nil:
		return 0, errors.New("data: missing")
	case env.time != nil && env.time[0] != '"':
		return 0, fmt.Errorf("time: %w", errJSONWrongType)
	}
	if checked {
		return s.pos, nil
	}
	rescan := scanner{src: env.data, depth: 1}
	if err := rescan.value(env.codec.schema); err != nil {
		return 0, fmt.Errorf("data: %w", err)
	}
	return s.pos, nil
}

// DecodeData reads the data of an event of type t, as strictly as Decode.
func DecodeData(t Type, raw []byte) (Data, error) {
	codec, ok := codecs[t]
	if !ok {
		return nil, errors.New("failed to decode event data: unknown event type")
	}
	s := scanner{src: raw}
	if err := s.wholeValue(codec.schema); err != nil {
		return nil, fmt.Errorf("failed to decode data of %s: %w", t, err)
	}
	d, err := codec.decode(raw)
	if err != nil {
		return nil, fmt.Errorf("failed to decode data of %s: %w", t, safeJSONError(err))
	}
	return d, nil
}

// safeJSONError keeps the field's name and drops the value that encoding/json repeats.
func safeJSONError(err error) error {
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		return fmt.Errorf("%s: %w", te.Field, errJSONWrongType)
	}
	return errJSONSyntax
}

// Wire is the canonical form of a full event outside of the engine. Its JSON names are part of the public contract.
type Wire struct {
	Version   int      `json:"version"`
	Type      Type     `json:"type"`
	RunID     string   `json:"run_id"`
	SessionID string   `json:"session_id"`
	Sequence  int64    `json:"sequence"`
	Time      string   `json:"time"` // RFC 3339, UTC, milliseconds
	Namespace []string `json:"namespace"`
	Data      Data     `json:"data"`
}

// MarshalWire returns the canonical JSON of e with its whole envelope. The namespace is an empty array at the root.
func MarshalWire(e Event) ([]byte, error) {
	d, ok := plainData(e.Data)
	if !ok {
		return nil, errors.New("failed to marshal event: no data of a known type")
	}
	ns := e.Namespace
	if ns == nil {
		ns = []string{}
	}
	out, err := appendJSON(nil, Wire{
		Version: Version, Type: d.Type(), RunID: e.RunID, SessionID: e.SessionID, Sequence: e.Sequence,
		Time: e.Time.UTC().Format(timeLayout), Namespace: ns, Data: withoutNilLists(d),
	})
	if err != nil {
		return nil, fmt.Errorf("failed to marshal event %s/%d: %w", e.RunID, e.Sequence, err)
	}
	return out, nil
}
