package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
)

var openAIFinish = map[stop]string{
	stopEnd: "stop", stopTool: "tool_calls", stopMaxTokens: "length", stopRefusal: "content_filter",
}

// created is the time that every reply bears: replies are reproducible.
const created = 1767225600

func (s *Server) openAIChat(w http.ResponseWriter, r *http.Request) {
	var req openAIRequest
	body, ok := read(w, r, &req)
	if !ok {
		return
	}
	c := req.conversation()
	id := s.idOf(s.record(r, body, c))
	w.Header().Set("X-Request-Id", fmt.Sprintf("req_fake%s", id))
	if len(req.Messages) == 0 {
		fail(w, r, http.StatusBadRequest, "messages: at least one message is required")
		return
	}
	if req.Stream {
		s.serve(w, r, c, &openAIStream{id: id, model: req.Model, usage: c.usage, sse: stream{w: w}})
		return
	}
	s.serve(w, r, c, &openAIWhole{id: id, model: req.Model, w: w})
}

func openAIUsage(input, output int) obj {
	return obj{
		"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
		"prompt_tokens_details":     obj{"cached_tokens": 0},
		"completion_tokens_details": obj{"reasoning_tokens": 0},
	}
}

// openAIStream: chunks of one choice, a chunk with the finish reason, the usage where it was asked for, [DONE].
type openAIStream struct {
	id    string
	model string
	usage bool
	sse   stream
	tools int
}

func (a *openAIStream) envelope(choices []obj) obj {
	return obj{
		"id": fmt.Sprintf("chatcmpl-fake%s", a.id), "object": "chat.completion.chunk", "created": created,
		"model": a.model, "choices": choices,
	}
}

func (a *openAIStream) chunk(delta obj, finish any) {
	if !a.sse.begun {
		a.sse.send("", a.envelope([]obj{{
			"index": 0, "delta": obj{"role": "assistant", "content": ""}, "finish_reason": nil,
		}}))
	}
	a.sse.send("", a.envelope([]obj{{"index": 0, "delta": delta, "finish_reason": finish}}))
}

func (a *openAIStream) think(d string) { a.chunk(obj{"reasoning_content": d}, nil) }
func (a *openAIStream) text(d string)  { a.chunk(obj{"content": d}, nil) }

func (a *openAIStream) tool(name string, args json.RawMessage) {
	index := a.tools
	a.tools++
	a.chunk(obj{"tool_calls": []obj{{
		"index": index, "id": fmt.Sprintf("call_fake%s_%d", a.id, a.tools), "type": "function",
		"function": obj{"name": name, "arguments": ""},
	}}}, nil)
	for _, f := range fragments(args) {
		a.chunk(obj{"tool_calls": []obj{{"index": index, "function": obj{"arguments": f}}}}, nil)
	}
}

func (a *openAIStream) fault() {
	a.sse.send("", obj{"error": obj{"message": "fake overload", "type": "server_error", "param": nil, "code": nil}})
}

func (a *openAIStream) cut() {
	if !a.sse.begun {
		a.chunk(obj{"content": ""}, nil)
	}
}

func (a *openAIStream) end(why stop, input, output int) {
	a.chunk(obj{}, openAIFinish[why])
	if a.usage {
		last := a.envelope([]obj{})
		last["usage"] = openAIUsage(input, output)
		a.sse.send("", last)
	}
	a.sse.send("", "[DONE]")
}

// openAIWhole collects the reply.
type openAIWhole struct {
	id      string
	model   string
	w       http.ResponseWriter
	content string
	thought string
	calls   []obj
}

func (a *openAIWhole) think(d string) { a.thought += d }
func (a *openAIWhole) text(d string)  { a.content += d }

func (a *openAIWhole) tool(name string, args json.RawMessage) {
	a.calls = append(a.calls, obj{
		"id": fmt.Sprintf("call_fake%s_%d", a.id, len(a.calls)+1), "type": "function",
		"function": obj{"name": name, "arguments": string(args)},
	})
}

func (a *openAIWhole) body(why stop, input, output int) obj {
	message := obj{"role": "assistant", "content": nil, "refusal": nil}
	if a.content != "" {
		message["content"] = a.content
	}
	if a.thought != "" {
		message["reasoning_content"] = a.thought
	}
	if len(a.calls) > 0 {
		message["tool_calls"] = a.calls
	}
	return obj{
		"id": fmt.Sprintf("chatcmpl-fake%s", a.id), "object": "chat.completion", "created": created,
		"model":   a.model,
		"choices": []obj{{"index": 0, "message": message, "logprobs": nil, "finish_reason": openAIFinish[why]}},
		"usage":   openAIUsage(input, output),
	}
}

func (a *openAIWhole) fault() {
	writeJSON(a.w, http.StatusServiceUnavailable, obj{"error": obj{
		"message": "fake overload", "type": "server_error", "param": nil, "code": nil,
	}})
}

func (a *openAIWhole) cut() { half(a.w, a.body(stopEnd, 1, 1)) }

func (a *openAIWhole) end(why stop, input, output int) {
	writeJSON(a.w, http.StatusOK, a.body(why, input, output))
}
