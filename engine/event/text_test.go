package event

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestTextProperties: whatever the text, cleaning is idempotent and complete, splitting loses nothing, cutting keeps
// its bound.
func TestTextProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := string(rapid.SliceOf(rapid.Byte()).Draw(t, "raw"))
		if rapid.Bool().Draw(t, "text?") {
			raw = rapid.String().Draw(t, "text")
		}
		clean := cleanText(raw)
		if !isPlain(clean, "\t\n") || cleanText(clean) != clean {
			t.Fatalf("%q is cleaned to %q", raw, clean)
		}
		if isPlain(raw, "\t\n") && clean != raw {
			t.Fatalf("plain %q is changed to %q", raw, clean)
		}
		limit := rapid.IntRange(4, 40).Draw(t, "limit")
		pieces := splitText(clean, limit)
		if strings.Join(pieces, "") != clean {
			t.Fatalf("pieces %q of %q", pieces, clean)
		}
		for _, p := range pieces {
			if len(p) > limit || !utf8.ValidString(p) {
				t.Fatalf("piece %q above %d", p, limit)
			}
		}
		cut := cutText(clean, limit)
		if len(cut) > limit || !utf8.ValidString(cut) || (len(clean) <= limit && cut != clean) {
			t.Fatalf("cut %q of %q", cut, clean)
		}
		encoded, err := appendJSON(nil, clean)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(cutEncoded(clean, len(encoded)-2)); got != len(clean) {
			t.Fatalf("%q: encoded length is misjudged", clean)
		}
		short := cutEncoded(clean, limit)
		if encoded, _ = appendJSON(nil, short); len(encoded)-2 > limit {
			t.Fatalf("%q takes %d bytes", short, len(encoded)-2)
		}
	})
}
