package chat

import (
	"bytes"
	"encoding/json"
	"strings"
)

// short gives a call's arguments on one line: an object as `key: value, key: value`, in its own order.
func short(raw json.RawMessage) string {
	if isNull(raw) {
		return ""
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return line(string(raw))
	}
	var parts []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return line(string(raw))
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return line(string(raw))
		}
		name, _ := key.(string) // the key of an object is one
		parts = append(parts, line(name)+": "+compact(value))
	}
	return strings.Join(parts, ", ")
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return line(string(raw))
	}
	return line(b.String())
}

// pretty gives arguments on as many lines as they need, for a person to decide on: nothing is left out.
func pretty(raw json.RawMessage) string {
	if isNull(raw) {
		return "{}"
	}
	return clean(indentJSON(raw))
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

// indentJSON writes JSON on as many lines as it needs.
func indentJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}
