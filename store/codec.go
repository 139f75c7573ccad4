package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/integrity"
)

// Encode turns a document into JSON. It refuses what JSON would change without a word (strings that are not UTF-8)
// and what is larger than maxBytes; the error names the field.
func Encode(document any, maxBytes int) ([]byte, error) {
	if path, bad := invalidText(reflect.ValueOf(document), ""); bad {
		return nil, fmt.Errorf("%w: %s is not valid UTF-8", ErrInvalid, path)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(document); err != nil {
		return nil, fmt.Errorf("%w: cannot be encoded as JSON: %w", ErrInvalid, err)
	}
	out := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if len(out) > maxBytes {
		return nil, fmt.Errorf("%w: the document has %d bytes as JSON, at most %d are allowed", ErrTooLarge, len(out), maxBytes)
	}
	return out, nil
}

// Decode is the reverse of Encode. Unknown fields are ignored, so that an older engine can read what a newer one of
// the same schema version wrote. It fails with integrity.ErrDamaged, wrapped.
func Decode(body []byte, document any) error {
	if err := json.Unmarshal(body, document); err != nil {
		return fmt.Errorf("failed to decode stored document: %w: %w", integrity.ErrDamaged, err)
	}
	return nil
}

// invalidText finds a string (or JSON text held as bytes) that is not UTF-8 and returns its path in JSON names.
func invalidText(v reflect.Value, path string) (string, bool) {
	switch v.Kind() {
	case reflect.String:
		return path, !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "", false
		}
		return invalidText(v.Elem(), path)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return path, v.Type() == reflect.TypeFor[json.RawMessage]() && !utf8.Valid(v.Bytes())
		}
		for i := range v.Len() {
			if p, bad := invalidText(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); bad {
				return p, true
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			name := fmt.Sprintf("%q", it.Key().String())
			if p, bad := invalidText(it.Key(), join(path, "key "+name)); bad {
				return p, true
			}
			if p, bad := invalidText(it.Value(), join(path, name)); bad {
				return p, true
			}
		}
	case reflect.Struct:
		t := v.Type()
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() { // time.Time and the like have no text of a client
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			if p, bad := invalidText(v.Field(i), join(path, name)); bad {
				return p, true
			}
		}
	}
	return "", false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
