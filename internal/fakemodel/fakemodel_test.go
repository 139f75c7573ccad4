package fakemodel

import (
	"bytes"
	"context"
	"encoding/json"
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
		{"the system in mid-conversation is not the user", first + "," + call + "," + result + `,{"role":"system","content":"[[text 2]]"}`, "[read_file {}]"},
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
		h := New(Options{}) // the second reply to the same goes on
		for reply := 1; reply <= 2; reply++ {
			ctx, leave := context.WithTimeout(t.Context(), time.Minute)
			body := `{"stream":true,"messages":[{"role":"user","content":"[[text 1]][[hang 1]][[text 2]]"}]}`
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest("POST", "/v1/messages", strings.NewReader(body)).WithContext(ctx))
			if got := strings.Contains(rec.Body.String(), "word2"); got != (reply == 2) {
				t.Errorf("reply %d is %s", reply, rec.Body.String())
			}
			leave()
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
