package event

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// maxJSONDepth bounds how deep JSON may nest inside an event: deeper text is refused before anything recurses into it.
const maxJSONDepth = 64

// maxKeyShown bounds how much of an unknown key an error repeats.
const maxKeyShown = 40

var (
	errJSONSyntax    = errors.New("malformed JSON")
	errJSONEnd       = errors.New("unexpected end of JSON")
	errJSONTrailing  = errors.New("trailing data after the JSON value")
	errJSONDepth     = fmt.Errorf("nesting above %d levels", maxJSONDepth)
	errJSONUTF8      = errors.New("invalid UTF-8")
	errJSONNumber    = errors.New("number out of range")
	errJSONNull      = errors.New("null is not allowed here")
	errJSONWrongType = errors.New("wrong JSON type")
)

// scanner walks JSON text once and refuses what encoding/json lets pass: duplicate keys, keys that match only without
// regard to case, unknown keys at any level, invalid UTF-8, nulls in typed fields, endless nesting, and numbers that
// no float64 holds (many readers turn those into infinities).
type scanner struct {
	src   []byte
	pos   int
	depth int
	emit  bool   // copy the canonical form to out
	out   []byte // canonical form: no white space, no raw control character, no lone surrogate
}

// wholeValue scans exactly one value; nothing but white space may follow it.
func (s *scanner) wholeValue(sc *schema) error {
	if err := s.value(sc); err != nil {
		return err
	}
	return s.end()
}

func (s *scanner) end() error {
	s.space()
	if s.pos != len(s.src) {
		return errJSONTrailing
	}
	return nil
}

func (s *scanner) space() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte after white space.
func (s *scanner) peek() (byte, error) {
	s.space()
	if s.pos >= len(s.src) {
		return 0, errJSONEnd
	}
	return s.src[s.pos], nil
}

// expect takes one structural byte.
func (s *scanner) expect(c byte) error {
	got, err := s.peek()
	if err != nil {
		return err
	}
	if got != c {
		return errJSONSyntax
	}
	s.take(c)
	return nil
}

func (s *scanner) take(c byte) {
	s.pos++
	if s.emit {
		s.out = append(s.out, c)
	}
}

// value scans one value that must fit sc.
func (s *scanner) value(sc *schema) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	switch c {
	case '{':
		if sc.kind != kindFree && sc.kind != kindObject && sc.kind != kindMap {
			return errJSONWrongType
		}
		return s.nested(func() error { return s.object(sc) })
	case '[':
		if sc.kind != kindFree && sc.kind != kindArray {
			return errJSONWrongType
		}
		return s.nested(func() error { return s.array(sc) })
	}
	if sc.kind != kindFree && sc.kind != kindScalar {
		if c == 'n' {
			return errJSONNull
		}
		return errJSONWrongType
	}
	switch c {
	case '"':
		_, _, err := s.str()
		return err
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		if sc.kind != kindFree {
			return errJSONNull
		}
		return s.literal("null")
	}
	return s.number()
}

func (s *scanner) nested(f func() error) error {
	s.depth++
	if s.depth > maxJSONDepth {
		return errJSONDepth
	}
	err := f()
	s.depth--
	return err
}

// object scans an object. A key may come once, whatever way it is escaped.
func (s *scanner) object(sc *schema) error {
	s.take('{')
	var keys keySet
	var known uint64
	for first := true; ; first = false {
		c, err := s.peek()
		if err != nil {
			return err
		}
		if c == '}' && first {
			s.take('}')
			return nil
		}
		if c != '"' {
			return errJSONSyntax
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		child := freeSchema
		if sc.kind == kindObject {
			i, ok := sc.index[string(key)]
			if !ok {
				return fmt.Errorf("unknown field %s", quoteKey(key))
			}
			if known&(1<<i) != 0 {
				return fmt.Errorf("duplicate field %s", quoteKey(key))
			}
			known |= 1 << i
			child = sc.fields[i]
		} else if !keys.add(key) {
			return fmt.Errorf("duplicate field %s", quoteKey(key))
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := s.value(child); err != nil {
			if sc.kind == kindObject {
				return fmt.Errorf("%s: %w", key, err)
			}
			return err
		}
		more, err := s.more('}')
		if err != nil || !more {
			return err
		}
	}
}

// more takes a comma and reports true, or takes the closing byte and reports false.
func (s *scanner) more(closing byte) (bool, error) {
	c, err := s.peek()
	if err != nil {
		return false, err
	}
	switch c {
	case ',':
		s.take(',')
		return true, nil
	case closing:
		s.take(closing)
		return false, nil
	}
	return false, errJSONSyntax
}

func (s *scanner) array(sc *schema) error {
	s.take('[')
	elem := freeSchema
	if sc.kind == kindArray {
		elem = sc.elem
	}
	if c, err := s.peek(); err != nil {
		return err
	} else if c == ']' {
		s.take(']')
		return nil
	}
	for i := 0; ; i++ {
		if err := s.value(elem); err != nil {
			if sc.kind == kindArray {
				return fmt.Errorf("%d: %w", i, err)
			}
			return err
		}
		more, err := s.more(']')
		if err != nil || !more {
			return err
		}
	}
}

func (s *scanner) literal(word string) error {
	if !bytes.HasPrefix(s.src[s.pos:], []byte(word)) {
		return errJSONSyntax
	}
	s.pos += len(word)
	if s.emit {
		s.out = append(s.out, word...)
	}
	return nil
}

// number scans a number by the grammar of RFC 8259, section 6.
func (s *scanner) number() error {
	start := s.pos
	s.skip("-")
	switch {
	case s.skip("0"):
	case s.digits() > 0:
	default:
		return errJSONSyntax
	}
	if s.skip(".") && s.digits() == 0 {
		return errJSONSyntax
	}
	exponent := s.skip("eE")
	if exponent {
		s.skip("+-")
		if s.digits() == 0 {
			return errJSONSyntax
		}
	}
	text := s.src[start:s.pos]
	if exponent || len(text) > 300 {
		if _, err := strconv.ParseFloat(string(text), 64); err != nil {
			return errJSONNumber
		}
	}
	if s.emit {
		s.out = append(s.out, text...)
	}
	return nil
}

func (s *scanner) skip(set string) bool {
	if s.pos < len(s.src) && bytes.IndexByte([]byte(set), s.src[s.pos]) >= 0 {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.src) && '0' <= s.src[s.pos] && s.src[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}
