package fakemodel

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frame is one server-sent event.
type frame struct {
	event string
	data  string
}

// frames reads a stream to its end; err is how it ended (nil: properly).
func frames(r io.Reader) (out []frame, err error) {
	br := bufio.NewReader(r)
	var f frame
	for {
		line, err := br.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "":
			out = append(out, f)
			f = frame{}
		case strings.HasPrefix(line, "event: "):
			f.event = line[7:]
		case strings.HasPrefix(line, "data: "):
			f.data = line[6:]
		default:
			return out, fmt.Errorf("unexpected line %q", line)
		}
	}
}

// heard is a reply as a client understands it, whichever API and mode.
type heard struct {
	status int
	text   string
	think  string
	tools  []string // "name {args}"
	stop   string
	usage  bool
}

const tools = `[{"name":"read_file","input_schema":{"type":"object"}},{"name":"ls","input_schema":{"type":"object"}}]`
const openAITools = `[{"type":"function","function":{"name":"read_file"}},{"type":"function","function":{"name":"ls"}}]`

func ask(t *testing.T, h http.Handler, path, messages string, stream bool) (*httptest.ResponseRecorder, string) {
	t.Helper()
	offered := tools
	if strings.Contains(path, "chat") {
		offered = openAITools
	}
	body := fmt.Sprintf(`{"model":"m","max_tokens":100,"stream":%t,"stream_options":{"include_usage":true},"messages":%s,"tools":%s}`,
		stream, messages, offered)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
	return w, w.Body.String()
}

func user(text string) string {
	raw, _ := json.Marshal(text)
	return fmt.Sprintf(`[{"role":"user","content":%s}]`, raw)
}

// hear decodes a reply strictly: an Anthropic stream must have its events in the order that the API documents.
func hear(t *testing.T, path string, stream bool, w *httptest.ResponseRecorder) heard {
	t.Helper()
	h := heard{status: w.Code}
	if w.Code != http.StatusOK {
		return h
	}
	if !stream {
		hearWhole(t, path, w.Body.Bytes(), &h)
		return h
	}
	fs, err := frames(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(path, "chat") {
		hearOpenAI(t, fs, &h)
	} else {
		hearAnthropic(t, fs, &h)
	}
	return h
}

func hearAnthropic(t *testing.T, fs []frame, h *heard) {
	t.Helper()
	state, index, open, args := "new", -1, "", ""
	for _, f := range fs {
		var e struct {
			Type         string
			Index        int
			ContentBlock struct{ Type, Name, ID string } `json:"content_block"`
			Delta        struct {
				Type, Text, Thinking, Signature string
				PartialJSON                     string `json:"partial_json"`
				StopReason                      string `json:"stop_reason"`
			}
			Usage struct {
				Output int `json:"output_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(f.data), &e); err != nil || e.Type != f.event {
			t.Fatalf("event %q does not match its data %s: %v", f.event, f.data, err)
		}
		want := map[string]string{
			"message_start": "new", "ping": "started", "content_block_start": "started", "content_block_delta": "block",
			"content_block_stop": "block", "message_delta": "started", "message_stop": "ending",
		}
		if want[e.Type] != state {
			t.Fatalf("%s in state %s", e.Type, state)
		}
		switch e.Type {
		case "message_start":
			state = "started"
		case "content_block_start":
			if e.Index != index+1 {
				t.Fatalf("block %d after %d", e.Index, index)
			}
			index, open, state, args = e.Index, e.ContentBlock.Type, "block", ""
			if open == "tool_use" {
				if e.ContentBlock.ID == "" {
					t.Fatal("tool without an id")
				}
				h.tools = append(h.tools, e.ContentBlock.Name)
			}
		case "content_block_delta":
			ok := map[string]string{
				"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking", "input_json_delta": "tool_use",
			}
			if ok[e.Delta.Type] != open || e.Index != index {
				t.Fatalf("%s in a block %s", e.Delta.Type, open)
			}
			h.text += e.Delta.Text
			h.think += e.Delta.Thinking
			args += e.Delta.PartialJSON
		case "content_block_stop":
			if open == "tool_use" {
				h.tools[len(h.tools)-1] += " " + args
			}
			state = "started"
		case "message_delta":
			h.stop, h.usage, state = e.Delta.StopReason, e.Usage.Output > 0, "ending"
		case "message_stop":
			state = "ended"
		}
	}
	if state != "ended" {
		t.Fatalf("stream ended in state %s", state)
	}
}

func hearOpenAI(t *testing.T, fs []frame, h *heard) {
	t.Helper()
	for i, f := range fs {
		if f.data == "[DONE]" {
			if i != len(fs)-1 {
				t.Fatal("something after [DONE]")
			}
			return
		}
		var e struct {
			Object  string
			Choices []struct {
				Delta struct {
					Role, Content string
					Reasoning     string `json:"reasoning_content"`
					ToolCalls     []struct {
						Index    int
						ID       string
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				FinishReason *string `json:"finish_reason"`
			}
			Usage *struct {
				Total int `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(f.data), &e); err != nil || e.Object != "chat.completion.chunk" {
			t.Fatalf("bad chunk %s: %v", f.data, err)
		}
		h.usage = h.usage || e.Usage != nil && e.Usage.Total > 0
		for _, c := range e.Choices {
			if i == 0 && c.Delta.Role != "assistant" {
				t.Fatal("the first chunk bears no role")
			}
			h.text += c.Delta.Content
			h.think += c.Delta.Reasoning
			for _, call := range c.Delta.ToolCalls {
				if call.ID != "" {
					h.tools = append(h.tools, call.Function.Name+" ")
				}
				if call.Index != len(h.tools)-1 {
					t.Fatalf("fragment of call %d while %d are known", call.Index, len(h.tools))
				}
				h.tools[call.Index] += call.Function.Arguments
			}
			if c.FinishReason != nil {
				h.stop = *c.FinishReason
			}
		}
	}
	t.Fatal("no [DONE]")
}

func hearWhole(t *testing.T, path string, body []byte, h *heard) {
	t.Helper()
	if strings.Contains(path, "chat") {
		var m struct {
			Choices []struct {
				Message struct {
					Content   *string
					Reasoning string `json:"reasoning_content"`
					ToolCalls []struct {
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				FinishReason string `json:"finish_reason"`
			}
			Usage struct {
				Total int `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatal(err)
		}
		c := m.Choices[0]
		if c.Message.Content != nil {
			h.text = *c.Message.Content
		}
		h.think, h.stop, h.usage = c.Message.Reasoning, c.FinishReason, m.Usage.Total > 0
		for _, call := range c.Message.ToolCalls {
			h.tools = append(h.tools, call.Function.Name+" "+call.Function.Arguments)
		}
		return
	}
	var m struct {
		Content []struct {
			Type, Text, Thinking, Name string
			Input                      json.RawMessage
		}
		StopReason string `json:"stop_reason"`
		Usage      struct {
			Output int `json:"output_tokens"`
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	for _, b := range m.Content {
		h.text += b.Text
		h.think += b.Thinking
		if b.Type == "tool_use" {
			h.tools = append(h.tools, b.Name+" "+string(b.Input))
		}
	}
	h.stop, h.usage = m.StopReason, m.Usage.Output > 0
}

func TestMarkersSayTheSameByBothAPIsStreamedAndNot(t *testing.T) {
	const args = `{"path":"a.txt","deep":[[1,2],["[[text]]"]],"long":"0123456789012345678901234567890123456789"}`
	cases := []struct {
		name, text string
		want       heard // stop in Anthropic's words
	}{
		{"no marker", "hello there", heard{text: "You said: hello there", stop: "end_turn"}},
		{"text", "please [[text]]", heard{text: "Hello from the fake model.", stop: "end_turn"}},
		{"words", "[[text 3]]", heard{text: "word1 word2 word3 ", stop: "end_turn"}},
		{"think", "[[think]]", heard{think: "I am thinking.", text: "Hello from the fake model.", stop: "end_turn"}},
		{"think and words", "[[think]][[text 1]]", heard{think: "I am thinking.", text: "word1 ", stop: "end_turn"}},
		{"slow", "[[slow 2 1]]", heard{text: "tick0 tick1 ", stop: "end_turn"}},
		{"tool", "[[tool read_file " + args + "]]", heard{tools: []string{"read_file " + args}, stop: "tool_use"}},
		{"tool without arguments", "[[tool ls]]", heard{tools: []string{"ls {}"}, stop: "tool_use"}},
		{"two tools", `[[text 1]][[tool ls {"a":1}]] [[tool ls {"a":2}]]`,
			heard{text: "word1 ", tools: []string{`ls {"a":1}`, `ls {"a":2}`}, stop: "tool_use"}},
		{"tool not offered", "[[tool shell {}]]", heard{text: "NO-SUCH-TOOL shell among read_file,ls", stop: "end_turn"}},
		{"stop", "[[text 1]][[stop max_tokens]]", heard{text: "word1 ", stop: "max_tokens"}},
		{"http", "[[http 429 7]]", heard{status: 429}},
		{"http after text", "[[text]][[http 500]]", heard{status: 500}},
		{"unknown marker", "see [[wiki]]", heard{text: "You said: see [[wiki]]", stop: "end_turn"}},
		{"marker in a list", "[[1, [[text 1]]", heard{text: "word1 ", stop: "end_turn"}},
		{"bad number", "[[text many]]", heard{status: 400}},
		{"bad arguments", "[[tool ls {]]", heard{status: 400}},
		{"too many words", "[[text 100001]]", heard{status: 400}},
	}
	finish := map[string]string{"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "": ""}
	for _, c := range cases {
		for _, path := range []string{"/v1/messages", "/v1/chat/completions"} {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s %t", c.name, path, stream), func(t *testing.T) {
					w, _ := ask(t, New(Options{}), path, user(c.text), stream)
					got := hear(t, path, stream, w)
					want := c.want
					if want.status == 0 {
						want.status, want.usage = 200, true
					}
					if strings.Contains(path, "chat") {
						want.stop = finish[want.stop]
					}
					if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
						t.Errorf("got  %+v\nwant %+v", got, want)
					}
				})
			}
		}
	}
}

func TestRetryAfterAndErrorForms(t *testing.T) {
	w, body := ask(t, New(Options{}), "/v1/messages", user("[[http 529 3]]"), true)
	if w.Code != 529 || w.Header().Get("Retry-After") != "3" || !strings.Contains(body, "overloaded_error") {
		t.Errorf("got %d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), body)
	}
	w, body = ask(t, New(Options{}), "/v1/chat/completions", user("[[http 401]]"), false)
	if w.Code != 401 || !strings.Contains(body, `"code":"401"`) {
		t.Errorf("got %d %s", w.Code, body)
	}
}

func TestTurnsWithTools(t *testing.T) {
	h := New(Options{})
	const first = `{"role":"user","content":[{"type":"text","text":"[[tool ls]][[then]][[tool read_file]][[then]][[text 1]]"}]}`
	const call = `{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"ls","input":{}}]}`
	const result = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a.txt"}]}]}`
	for _, c := range []struct{ name, messages, want string }{
		{"second segment", first + "," + call + "," + result, "[read_file {}]"},
		{"third segment", first + "," + call + "," + result + "," + call + "," + result, "word1 "},
		{"past the script", first + strings.Repeat(","+call+","+result, 3), "TOOL-RESULT-SEEN: a.txt"},
		{"a reminder is not the user", first + strings.Repeat(","+call+","+result, 3) +
			`,{"role":"user","content":"<system-reminder>be nice</system-reminder>"}`, "TOOL-RESULT-SEEN: a.txt"},
		{"text beside a patched result", first + "," + call +
			`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"gone"},{"type":"text","text":"hi"}]}`, "You said: hi"},
		{"recall", `{"role":"user","content":"one"},{"role":"assistant","content":"x"},{"role":"user","content":"two"},` +
			`{"role":"user","content":"[[recall]]"}`, "RECALL: one | two"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _ := ask(t, h, "/v1/messages", "["+c.messages+"]", true)
			got := hear(t, "/v1/messages", true, w)
			if said := got.text + strings.Join([]string{fmt.Sprint(got.tools)}, ""); !strings.Contains(said, c.want) {
				t.Errorf("got %q, want %q", said, c.want)
			}
		})
	}
	w, _ := ask(t, h, "/v1/chat/completions", `[{"role":"user","content":"[[tool ls]]"},`+
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"ls","arguments":"{}"}}]},`+
		`{"role":"tool","tool_call_id":"c","content":"b.txt"},{"role":"tool","tool_call_id":"d","content":"c.txt"}]`, true)
	if got := hear(t, "/v1/chat/completions", true, w); got.text != "TOOL-RESULT-SEEN: b.txt | c.txt" {
		t.Errorf("got %q", got.text)
	}
}

func TestCutDropsTheConnectionInMidStream(t *testing.T) {
	srv := httptest.NewServer(New(Options{}))
	defer srv.Close()
	for _, path := range []string{"/v1/messages", "/v1/chat/completions"} {
		for _, stream := range []bool{true, false} {
			body := fmt.Sprintf(`{"stream":%t,"messages":[{"role":"user","content":"[[text 2]][[cut]]"}]}`, stream)
			res, err := http.Post(srv.URL+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err == nil {
				t.Errorf("%s stream=%t: the cut reply looks whole: %s", path, stream, raw)
			}
			if stream && !bytes.Contains(raw, []byte("word2")) {
				t.Errorf("%s: nothing before the cut: %s", path, raw)
			}
		}
	}
}

func TestErrorInsideAStream(t *testing.T) {
	_, body := ask(t, New(Options{}), "/v1/messages", user("[[text 1]][[error]]"), true)
	if !strings.Contains(body, "event: error") || strings.Contains(body, "message_stop") {
		t.Errorf("got %s", body)
	}
	_, body = ask(t, New(Options{}), "/v1/chat/completions", user("[[text 1]][[error]]"), true)
	if !strings.Contains(body, `"error":`) || strings.Contains(body, "DONE") {
		t.Errorf("got %s", body)
	}
	if w, _ := ask(t, New(Options{}), "/v1/messages", user("[[error]]"), false); w.Code != 529 {
		t.Errorf("got %d", w.Code)
	}
}

func TestSlowKeepsItsPaceAndHangEndsWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w, _ := ask(t, New(Options{}), "/v1/messages", user("[[slow 4 250]]"), true)
		if took := time.Since(began); took != time.Second || w.Code != 200 {
			t.Errorf("4 deltas at 250 ms took %v", took)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		body := `{"stream":true,"messages":[{"role":"user","content":"[[text 1]][[hang]]"}]}`
		r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(body)).WithContext(ctx)
		rec := httptest.NewRecorder()
		began = time.Now()
		New(Options{DeltaDelay: time.Second}).ServeHTTP(rec, r)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("hung for %v, want until the client left", took)
		}
		if s := rec.Body.String(); !strings.Contains(s, "word1") || strings.Contains(s, "message_stop") {
			t.Errorf("got %s", s)
		}
	})
}

func TestRequestsAreRecordedAndTheKeyIsRequired(t *testing.T) {
	h := New(Options{APIKey: "right"})
	send := func(header, value string) int {
		r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(
			`{"model":"m","system":"be brief","messages":[{"role":"user","content":"hi"}],"tools":`+tools+`}`))
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		header, value string
		want          int
	}{{"X-Api-Key", "right", 200}, {"Authorization", "Bearer right", 200}, {"X-Api-Key", "wrong", 401}, {"Authorization", "right2", 401}} {
		if got := send(c.header, c.value); got != c.want {
			t.Errorf("%s %s: got %d, want %d", c.header, c.value, got, c.want)
		}
	}
	seen := h.Requests()
	if len(seen) != 4 || seen[0].Header.Get("X-Api-Key") != "right" || seen[0].System != "be brief" ||
		fmt.Sprint(seen[0].Users, seen[0].Tools) != "[hi] [read_file ls]" || len(seen[0].Body) == 0 || seen[3].Seq != 4 {
		t.Errorf("recorded %+v", seen)
	}
	for range maxKeptRequests {
		send("X-Api-Key", "right")
	}
	if seen = h.Requests(); len(seen) != maxKeptRequests || seen[0].Seq != 5 {
		t.Errorf("kept %d from %d", len(seen), seen[0].Seq)
	}
	h.Reset()
	if len(h.Requests()) != 0 {
		t.Error("Reset kept something")
	}
}

func TestModelsCountAndBadBodies(t *testing.T) {
	h := New(Options{})
	get := func(method, path, body string, header ...string) (int, string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if header != nil {
			r.Header.Set(header[0], header[1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if code, body := get("GET", "/v1/models", ""); code != 200 || !strings.Contains(body, `"object":"list"`) {
		t.Errorf("got %d %s", code, body)
	}
	if code, body := get("GET", "/v1/models", "", "Anthropic-Version", "2023-06-01"); code != 200 || !strings.Contains(body, `"has_more":false`) {
		t.Errorf("got %d %s", code, body)
	}
	if code, body := get("POST", "/v1/messages/count_tokens", `{"messages":[{"role":"user","content":"12345678"}]}`); code != 200 || strings.TrimSpace(body) != `{"input_tokens":3}` {
		t.Errorf("got %d %s", code, body)
	}
	for _, c := range []struct {
		path, body string
		want       int
	}{
		{"/v1/messages", `{`, 400}, {"/v1/messages", `{"messages":[]}`, 400}, {"/v1/messages", `{"messages":[{"role":"user","content":7}]}`, 400},
		{"/v1/chat/completions", `[]`, 400}, {"/v1/chat/completions", `{"messages":[]}`, 400}, {"/v2/other", `{}`, 404},
	} {
		if code, body := get("POST", c.path, c.body); code != c.want {
			t.Errorf("%s %s: got %d %s", c.path, c.body, code, body)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"[[text 3]]", `[[tool a {"b":[[1]]}]] [[then]]`, "[[slow 1 2]][[", "[[tool ]]", "[[[[think]]]]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parse(s)
		if err == nil {
			for _, seg := range got {
				for _, st := range seg {
					if st.do == doTool && (st.name == "" || !json.Valid(st.args)) {
						t.Fatalf("%q gave the tool %q with %s", s, st.name, st.args)
					}
				}
			}
		}
	})
}
