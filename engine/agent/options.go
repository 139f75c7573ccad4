package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/engine/problem"
)

// MaxOptionsDepth bounds the nesting of harness options; the object itself is depth 1.
const MaxOptionsDepth = 16

const optionsField = "harness.options"

// maxExactInteger is the largest integer that every JSON reader keeps (RFC 8259 section 6).
const maxExactInteger = 1<<53 - 1

// checkOptions checks the JSON text of harness options before anything is built from it: size, UTF-8, an object, depth,
// distinct keys, numbers that survive canonical JSON, no control characters.
func checkOptions(raw []byte) error {
	if len(raw) > harness.MaxOptionsBytes {
		return problem.Field(optionsField, "is longer than %d bytes", harness.MaxOptionsBytes)
	}
	if !utf8.Valid(raw) {
		return problem.Field(optionsField, "is not valid UTF-8")
	}
	if raw[0] != '{' {
		return problem.Field(optionsField, "must be a JSON object")
	}
	w := optionsWalk{dec: json.NewDecoder(bytes.NewReader(raw))}
	w.dec.UseNumber()
	if err := w.value(optionsField, 0); err != nil {
		if _, ok := problem.As(err); ok {
			return err
		}
		return problem.Field(optionsField, "is not well-formed JSON").Because(err)
	}
	if _, err := w.dec.Token(); !errors.Is(err, io.EOF) {
		return problem.Field(optionsField, "has something after the object")
	}
	return nil
}

type optionsWalk struct{ dec *json.Decoder }

// value walks one value. Its errors name the path down to the depth that is allowed.
func (w optionsWalk) value(path string, depth int) error {
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case json.Delim:
		if depth == MaxOptionsDepth {
			return problem.Field(optionsField, "is nested deeper than %d", MaxOptionsDepth)
		}
		if v == '{' {
			return w.object(path, depth+1)
		}
		for i := 0; w.dec.More(); i++ {
			if err := w.value(path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
				return err
			}
		}
		_, err = w.dec.Token()
		return err
	case json.Number:
		return checkNumber(path, v)
	case string:
		if hasControl(v, true) {
			return problem.Field(path, "holds a control character")
		}
	}
	return nil
}

func (w optionsWalk) object(path string, depth int) error {
	seen := map[string]bool{}
	for w.dec.More() {
		token, err := w.dec.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		if key == "" || len(key) > 128 || hasControl(key, false) {
			return problem.Field(path, "has a key that is empty, longer than 128 bytes or holds a control character")
		}
		if seen[key] {
			return problem.Field(path, "has the key %q twice", key)
		}
		seen[key] = true
		if err := w.value(path+"."+key, depth); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

func checkNumber(path string, n json.Number) error {
	f, err := n.Float64()
	if err != nil {
		return problem.Field(path, "is a number out of range")
	}
	if !strings.ContainsAny(n.String(), ".eE") && (f > maxExactInteger || f < -maxExactInteger) {
		return problem.Field(path, "is an integer beyond 2^53-1, which JSON readers may change")
	}
	return nil
}
