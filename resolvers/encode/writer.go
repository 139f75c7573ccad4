package encode

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/harness-engine/harness-engine/engine/event"
)

// writer collects the bytes of one result. Its forms are those of the executor's scalars.
type writer struct {
	b   []byte
	err error // of the first value that had no form

	second int64 // whose form is in stamp
	stamp  [len("2006-01-02T15:04:05.")]byte
}

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: %s", ErrValue, fmt.Sprintf(format, args...))
	}
}

func (w *writer) raw(s string) { w.b = append(w.b, s...) }
func (w *writer) null()        { w.b = append(w.b, "null"...) }

func (w *writer) int(n int64) { w.b = strconv.AppendInt(w.b, n, 10) }

func (w *writer) bool(v bool) { w.b = strconv.AppendBool(w.b, v) }

// optionalInt writes null for 0.
func (w *writer) optionalInt(n int64) {
	if n == 0 {
		w.null()
		return
	}
	w.int(n)
}

// pointer writes null for nil.
func (w *writer) pointer(n *int64) {
	if n == nil {
		w.null()
		return
	}
	w.int(*n)
}

func (w *writer) float(f *float64) {
	switch {
	case f == nil:
		w.null()
	case math.IsInf(*f, 0), math.IsNaN(*f):
		w.fail("a number that JSON has no form for")
	default:
		w.b = strconv.AppendFloat(w.b, *f, 'g', -1, 64)
	}
}

// optional writes null for an empty string.
func (w *writer) optional(s string) {
	if s == "" {
		w.null()
		return
	}
	w.string(s)
}

func (w *writer) string(s string) { w.b = appendString(w.b, s) }

func (w *writer) strings(list []string) {
	w.b = append(w.b, '[')
	for i, s := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.string(s)
	}
	w.b = append(w.b, ']')
}

// json writes a JSON value as it is, and null for none.
func (w *writer) json(raw json.RawMessage) {
	if len(raw) == 0 {
		w.null()
		return
	}
	w.b = append(w.b, raw...)
}

// details writes the details of a warning.
func (w *writer) details(d map[string]any) {
	if len(d) == 0 {
		w.null()
		return
	}
	raw, err := json.Marshal(d)
	if err != nil {
		w.fail("details of a warning")
		return
	}
	w.b = append(w.b, raw...)
}

// time writes RFC 3339 in UTC with milliseconds. Events in a row are mostly of the same second.
func (w *writer) time(t time.Time) {
	if t.IsZero() {
		w.fail("an event without a time")
		return
	}
	if s := t.Unix(); s != w.second || w.stamp[0] == 0 {
		form := t.UTC().AppendFormat(make([]byte, 0, 32), "2006-01-02T15:04:05.")
		if len(form) != len(w.stamp) { // a year of more than four digits
			w.b = append(w.b, '"')
			w.b = t.UTC().AppendFormat(w.b, "2006-01-02T15:04:05.000Z")
			w.b = append(w.b, '"')
			return
		}
		w.second = s
		copy(w.stamp[:], form)
	}
	ms := t.Nanosecond() / int(time.Millisecond)
	w.b = append(w.b, '"')
	w.b = append(w.b, w.stamp[:]...)
	w.b = append(w.b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z', '"')
}

func (w *writer) optionalTime(t *time.Time) {
	if t == nil || t.IsZero() {
		w.null()
		return
	}
	w.time(*t)
}

func (w *writer) kind(k event.InterruptKind) {
	switch k {
	case event.InterruptForm:
		w.raw(`"FORM_INPUT"`)
	case event.InterruptApproval:
		w.raw(`"TOOL_APPROVAL"`)
	default:
		w.fail("an interrupt of kind %q", k)
	}
}

func quoted(s string) string { return string(appendString(nil, s)) }

const hex = "0123456789ABCDEF"

// appendString writes a string as the executor does: it escapes what JSON demands and nothing else.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '\\' && c != '"' {
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '\t':
			dst = append(dst, `\t`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\\', '"':
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
		}
		start = i + 1
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
