package chat

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/harness-engine/harness-engine/internal/client"
)

func TestFieldValue(t *testing.T) {
	field := func(kind string, required bool) client.FormField {
		return client.FormField{Name: "f", Kind: kind, Required: required, Choices: []string{"red", "2", "blue"}}
	}
	for _, tc := range []struct {
		kind, text string
		required   bool
		want       string // "" is an error, "none" is no value
	}{
		{"string", "a \"b\"", true, `"a \"b\""`}, {"string", "", true, ""}, {"string", "", false, "none"},
		{"number", "12", true, "12"}, {"number", "12345678901234567890", true, "12345678901234567890"}, {"number", "1.50", true, "1.50"},
		{"number", "+3", true, "3"}, {"number", ".5", true, "0.5"}, {"number", "NaN", true, ""}, {"number", "Inf", true, ""}, {"number", "1e999", true, ""}, {"number", "x", false, ""},
		{"boolean", "Yes", true, "true"}, {"boolean", "n", true, "false"}, {"boolean", "1", true, ""},
		{"choice", "red", true, `"red"`}, {"choice", "1", true, `"red"`}, {"choice", "2", true, `"2"`}, {"choice", "3", true, `"blue"`}, {"choice", "4", true, ""}, {"choice", "0", true, ""}, {"choice", "green", false, ""},
		{"something new", "x", true, `"x"`},
	} {
		got, err := fieldValue(field(tc.kind, tc.required), tc.text)
		switch {
		case tc.want == "":
			if err == nil {
				t.Errorf("%s %q: got %s, want an error", tc.kind, tc.text, got)
			}
		case tc.want == "none":
			if got != nil || err != nil {
				t.Errorf("%s %q: got %s, %v, want none", tc.kind, tc.text, got, err)
			}
		case err != nil || string(got) != tc.want || !json.Valid(got):
			t.Errorf("%s %q: got %s, %v, want %s", tc.kind, tc.text, got, err, tc.want)
		}
	}
}

// asked has a person answer an interrupt.
func asked(t *testing.T, i client.Interrupt, answers ...string) (client.Decision, string, error) {
	t.Helper()
	var out strings.Builder
	in, person := io.Pipe()
	go func() {
		for _, a := range answers {
			_, _ = io.WriteString(person, a+"\n")
		}
		_ = person.Close()
	}()
	c := newChat(Options{In: in, Out: &out, Err: &out, Signals: make(chan os.Signal, 1)})
	defer func() { _ = in.Close(); c.console.close() }()
	d, err := c.ask(t.Context(), i)
	_ = c.draw.flush() // to memory
	return d, out.String(), err
}

func TestAskAboutCalls(t *testing.T) {
	all := []string{"approve", "edit", "reject"}
	three := client.Interrupt{Kind: client.KindApproval, Calls: []client.ApprovalCall{
		{ToolCallID: "1", Name: "one", Arguments: json.RawMessage(`{"a":"\u001b[2J"}`), Allowed: all},
		{ToolCallID: "2", Name: "two", Allowed: []string{"approve", "reject"}},
		{ToolCallID: "3", Name: "three", Allowed: []string{"reject"}},
	}}
	for _, tc := range []struct {
		answers []string
		want    string // of the decision, or an error
	}{
		{[]string{"a", "a", "r"}, `{"calls":[{"toolCallId":"1","decision":{"approve":true}},{"toolCallId":"2","decision":{"approve":true}},{"toolCallId":"3","decision":{"reject":{}}}]}`},
		{[]string{"ALL", "no too far"}, `{"calls":[{"toolCallId":"1","decision":{"approve":true}},{"toolCallId":"2","decision":{"approve":true}},{"toolCallId":"3","decision":{"reject":{"message":"too far"}}}]}`},
		{[]string{`edit {"a": 1}`, "n", "n"}, `{"calls":[{"toolCallId":"1","decision":{"edit":{"arguments":{"a":1}}}},{"toolCallId":"2","decision":{"reject":{}}},{"toolCallId":"3","decision":{"reject":{}}}]}`},
		{[]string{"e", `{"b":2}`, "n", "n"}, `{"calls":[{"toolCallId":"1","decision":{"edit":{"arguments":{"b":2}}}},{"toolCallId":"2","decision":{"reject":{}}},{"toolCallId":"3","decision":{"reject":{}}}]}`},
		{[]string{"e null", "e {", "", "?", "a", "e {}", "d"}, `{"dismiss":true}`},
		{[]string{"a", "l"}, "later"},
		{[]string{"a"}, "EOF"},
	} {
		d, out, err := asked(t, three, tc.answers...)
		got, _ := json.Marshal(d)
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != tc.want {
			t.Errorf("%q: got %s, want %s", tc.answers, got, tc.want)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("%q: %q", tc.answers, out)
		}
	}
}

// Long arguments are cut at first, and shown whole when they are asked for.
func TestAskShowsEverythingOnDemand(t *testing.T) {
	lines := make([]string, 200)
	for i := range lines {
		lines[i] = "x"
	}
	lines[199] = "the end"
	arguments, err := json.Marshal(map[string][]string{"lines": lines})
	if err != nil {
		t.Fatal(err)
	}
	i := client.Interrupt{Kind: client.KindApproval, Calls: []client.ApprovalCall{{ToolCallID: "1", Name: "write", Arguments: arguments, Allowed: []string{"approve"}}}}
	if _, out, _ := asked(t, i, "a"); strings.Contains(out, "the end") || !strings.Contains(out, "more lines; v shows all") {
		t.Errorf("got %q", out)
	}
	if _, out, err := asked(t, i, "v", "a"); err != nil || !strings.Contains(out, "the end") {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestAskForm(t *testing.T) {
	form := client.Interrupt{Kind: client.KindForm, Prompt: "Who?\x1b[2J", Fields: []client.FormField{
		{Name: `na"me`, Kind: "string", Required: true}, {Name: "age", Kind: "number"}, {Name: "ok", Kind: "boolean"},
	}}
	for _, tc := range []struct {
		answers []string
		want    string
	}{
		{[]string{"", "Ada", "", "y"}, `{"form":{"na\"me":"Ada","ok":true}}`},
		{[]string{"/path", "7", ""}, `{"form":{"na\"me":"/path","age":7}}`},
		{[]string{"Ada", "/later"}, "later"},
		{[]string{"Ada", "/dismiss"}, `{"dismiss":true}`},
		{[]string{"Ada"}, "EOF"},
	} {
		d, out, err := asked(t, form, tc.answers...)
		got, _ := json.Marshal(d)
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != tc.want || strings.Contains(out, "\x1b") {
			t.Errorf("%q: got %s, want %s; %q", tc.answers, got, tc.want, out)
		}
	}
}

func TestKeysGiveUpALineAtCtrlC(t *testing.T) {
	for in, want := range map[string]string{"abc": "abc", "ab\x03": "ab" + giveUp, "\x03": giveUp, "ab\x03cd": "ab" + giveUp} {
		k := &keys{from: strings.NewReader(in)}
		got, err := io.ReadAll(k)
		if err != nil || string(got) != want || k.interrupted != strings.Contains(in, "\x03") {
			t.Errorf("%q: got %q, %v, interrupted %v", in, got, err, k.interrupted)
		}
	}
	// However little room the reader gives.
	k := &keys{from: strings.NewReader(strings.Repeat("x", 50) + "\x03")}
	var got []byte
	for buf := make([]byte, len(giveUp)); ; {
		n, err := k.Read(buf)
		got = append(got, buf[:n]...)
		if errors.Is(err, io.EOF) {
			break
		}
	}
	if want := strings.Repeat("x", 50) + giveUp; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHistoryKeepsMessages(t *testing.T) {
	h := &history{on: true}
	for _, e := range []string{"one", "", "two", "two", " "} {
		h.Add(e)
	}
	h.on = false
	h.Add("answer")
	if want := []string{"two", "one"}; !slices.Equal(h.entries, want) || h.Len() != 2 || h.At(0) != "two" {
		t.Errorf("got %q, want %q", h.entries, want)
	}
	h.on = true
	for range maxHistory + 5 {
		h.Add("a")
		h.Add("b")
	}
	if h.Len() != maxHistory {
		t.Errorf("%d entries", h.Len())
	}
}

func TestLinesEndWithASignal(t *testing.T) {
	in, out := io.Pipe()
	signals := make(chan os.Signal, 1)
	l := newLines(in, signals)
	signals <- os.Interrupt
	if _, err := l.read(t.Context(), ""); !errors.Is(err, errLeave) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.read(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { _, _ = io.WriteString(out, "late\n"); _ = out.Close() }()
	if text, err := l.read(t.Context(), ""); text != "late" || err != nil { // asked for before, and not lost
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := l.read(t.Context(), ""); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	l.close()
}

func TestMediaType(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n0000")
	for _, tc := range []struct {
		path string
		data []byte
		want string
	}{
		{"a.md", []byte("# hi"), "text/markdown"}, {"a.CSV", []byte("a,b"), "text/csv"}, {"a.json", []byte("{}"), "application/json"},
		{"a", []byte("hi"), "text/plain"}, {"a.txt", nil, "text/plain"}, {"a.png", png, "image/png"}, {"a.md", png, "image/png"},
		{"a.png", []byte("hi"), "text/plain"}, {"a", []byte{0, 1, 2}, "application/octet-stream"},
	} {
		if got := mediaType(tc.path, tc.data); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.path, got, tc.want)
		}
	}
}
