package event

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// key scans a key and returns it unescaped.
func (s *scanner) key() ([]byte, error) {
	raw, escaped, err := s.str()
	if err != nil {
		return nil, err
	}
	if !escaped {
		return raw[1 : len(raw)-1], nil
	}
	return unescape(raw)
}

func unescape(raw []byte) ([]byte, error) {
	var v string
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, errJSONSyntax
	}
	return []byte(v), nil
}

// str scans a string and returns it with its quotes, and whether it holds escapes.
func (s *scanner) str() (raw []byte, escaped bool, err error) {
	start, i, src := s.pos, s.pos+1, s.src
	plain := true
	for i < len(src) {
		c := src[i]
		switch {
		case c == '"':
			raw = src[start : i+1]
			s.pos = i + 1
			if s.emit {
				if plain {
					s.out = append(s.out, raw...)
				} else {
					s.out = appendCanonicalString(s.out, raw)
				}
			}
			return raw, escaped, nil
		case c == '\\':
			escaped = true
			n, err := escapeLen(src[i:])
			if err != nil {
				return nil, false, err
			}
			if n == 6 {
				plain = false
			}
			i += n
		case c < 0x20:
			return nil, false, errJSONSyntax
		case c < utf8.RuneSelf:
			if c == 0x7f {
				plain = false
			}
			i++
		default:
			r, n := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && n == 1 {
				return nil, false, errJSONUTF8
			}
			if r < 0xa0 {
				plain = false
			}
			i += n
		}
	}
	return nil, false, errJSONEnd
}

// escapeLen is the length of the escape sequence that b starts with.
func escapeLen(b []byte) (int, error) {
	if len(b) < 2 {
		return 0, errJSONEnd
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		if _, ok := hex4(b); !ok {
			return 0, errJSONSyntax
		}
		return 6, nil
	}
	return 0, errJSONSyntax
}

// hex4 reads the code unit of a \uXXXX escape.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		r <<= 4
		switch {
		case '0' <= c && c <= '9':
			r |= rune(c - '0')
		case 'a' <= c && c <= 'f':
			r |= rune(c - 'a' + 10)
		case 'A' <= c && c <= 'F':
			r |= rune(c - 'A' + 10)
		default:
			return 0, false
		}
	}
	return r, true
}

// appendCanonicalString copies a scanned string literal, escapes DEL and the C1 controls, and replaces the escape of
// a surrogate without its partner, which stands for no character.
func appendCanonicalString(out, raw []byte) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(raw); {
		c := raw[i]
		switch {
		case c == '\\' && raw[i+1] == 'u':
			r, _ := hex4(raw[i:])
			if r < 0xd800 || r > 0xdfff {
				out = append(out, raw[i:i+6]...)
				i += 6
				continue
			}
			low, ok := hex4(raw[i+6:])
			if r < 0xdc00 && ok && low >= 0xdc00 && low <= 0xdfff {
				out = append(out, raw[i:i+12]...)
				i += 12
				continue
			}
			out = append(out, `\ufffd`...)
			i += 6
		case c == '\\':
			out = append(out, raw[i:i+2]...)
			i += 2
		case c == 0x7f:
			out = append(out, `\u007f`...)
			i++
		case c == 0xc2 && raw[i+1] < 0xa0: // U+0080 to U+009F
			out = append(out, '\\', 'u', '0', '0', hex[raw[i+1]>>4], hex[raw[i+1]&15])
			i += 2
		default:
			out = append(out, c)
			i++
		}
	}
	return out
}

// canonicalObject returns raw, which must be one JSON object, in its canonical form.
func canonicalObject(raw []byte) ([]byte, error) {
	s := scanner{src: raw, emit: true, out: make([]byte, 0, len(raw))}
	if c, err := s.peek(); err != nil {
		return nil, err
	} else if c != '{' {
		return nil, errJSONWrongType
	}
	if err := s.wholeValue(freeSchema); err != nil {
		return nil, err
	}
	return s.out, nil
}

// keySet finds duplicates; small sets need no map.
type keySet struct {
	few  [][]byte
	many map[string]struct{}
}

func (k *keySet) add(key []byte) bool {
	if k.many != nil {
		if _, ok := k.many[string(key)]; ok {
			return false
		}
		k.many[string(key)] = struct{}{}
		return true
	}
	for _, other := range k.few {
		if bytes.Equal(other, key) {
			return false
		}
	}
	k.few = append(k.few, key)
	if len(k.few) > 16 {
		k.many = make(map[string]struct{}, 64)
		for _, other := range k.few {
			k.many[string(other)] = struct{}{}
		}
	}
	return true
}

func quoteKey(key []byte) string {
	if len(key) > maxKeyShown {
		key = key[:maxKeyShown]
	}
	return strconv.QuoteToASCII(string(key))
}
