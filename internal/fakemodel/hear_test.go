package fakemodel

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

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
