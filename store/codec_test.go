package store

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

type inner struct {
	Text string          `json:"text"`
	Raw  json.RawMessage `json:"raw,omitempty"`
	Hash [4]byte         `json:"hash"` // bytes that are no text
}

type document struct {
	Name  string            `json:"name"`
	Plain string            // no tag: the field's name
	Ptr   *inner            `json:"ptr,omitempty"`
	List  []inner           `json:"list,omitempty"`
	Map   map[string]string `json:"map,omitempty"`
}

func TestEncodeNamesTheField(t *testing.T) {
	const bad = "\xff"
	for want, d := range map[string]document{
		"name":          {Name: bad},
		"Plain":         {Plain: bad},
		"ptr.text":      {Ptr: &inner{Text: bad}},
		"ptr.raw":       {Ptr: &inner{Raw: json.RawMessage(`"` + bad + `"`)}},
		"list[1].text":  {List: []inner{{}, {Text: bad}}},
		`map."key"`:     {Map: map[string]string{"key": bad}},
		`map.key "\xff`: {Map: map[string]string{bad: "v"}},
	} {
		_, err := Encode(d, 1000)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	if _, err := Encode(document{Ptr: &inner{Hash: [4]byte{0xff, 0xfe}}}, 1000); err != nil {
		t.Errorf("bytes that are no text: %v", err)
	}
	if _, err := Encode(document{Name: strings.Repeat("x", 1000)}, 1000); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

func TestDecodeIgnoresUnknownFieldsAndSaysWhatFails(t *testing.T) {
	var d document
	if err := Decode([]byte(`{"name":"n","later":{"x":1}}`), &d); err != nil || d.Name != "n" {
		t.Errorf("got %+v, %v", d, err)
	}
	if err := Decode([]byte(`{"name":`), &d); err == nil {
		t.Error("half a document was decoded")
	}
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "plain", "\xff", "\u2028<>&", "\x00", `\ufffd`, "\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		in := document{Name: s, List: []inner{{Text: s}}, Map: map[string]string{s: s}}
		body, err := Encode(in, MaxDocumentBytes)
		if !utf8.ValidString(s) {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%q was accepted: %v", s, err)
			}
			return
		}
		var out document
		if err != nil || Decode(body, &out) != nil || out.Name != s || out.List[0].Text != s || out.Map[s] != s {
			t.Fatalf("%q came back as %+v (%v)", s, out, err)
		}
	})
}
