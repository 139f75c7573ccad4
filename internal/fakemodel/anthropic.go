package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// obj keeps the literals of the wire formats readable.
type obj = map[string]any

var anthropicStops = map[stop]string{
	stopEnd: "end_turn", stopTool: "tool_use", stopMaxTokens: "max_tokens", stopRefusal: "refusal",
}

func (s *Server) anthropicMessages(w http.ResponseWriter, r *http.Request) {
	var req anthropicRequest
	body, ok := read(w, r, &req)
	if !ok {
		return
	}
	c := req.conversation()
	id := s.idOf(s.record(r, body, c))
	w.Header().Set("Request-Id", fmt.Sprintf("req_fake%s", id))
	if len(req.Messages) == 0 {
		fail(w, r, http.StatusBadRequest, "messages: at least one message is required")
		return
	}
	m := anthropicMessage{id: id, model: req.Model, input: c.inputTokens()}
	if req.Stream {
		s.serve(w, r, c, &anthropicStream{anthropicMessage: m, sse: stream{w: w}, index: -1})
		return
	}
	s.serve(w, r, c, &anthropicWhole{anthropicMessage: m, w: w})
}

func (s *Server) anthropicCountTokens(w http.ResponseWriter, r *http.Request) {
	var req anthropicRequest
	body, ok := read(w, r, &req)
	if !ok {
		return
	}
	c := req.conversation()
	s.record(r, body, c)
	writeJSON(w, http.StatusOK, obj{"input_tokens": c.inputTokens()})
}

type anthropicMessage struct {
	id    string
	model string
	input int
}

func (m anthropicMessage) envelope(content []obj, why any, output int) obj {
	return obj{
		"id": fmt.Sprintf("msg_fake%s", m.id), "type": "message", "role": "assistant", "model": m.model,
		"content": content, "stop_reason": why, "stop_sequence": nil, "usage": anthropicUsage(m.input, output),
	}
}

func anthropicUsage(input, output int) obj {
	return obj{
		"input_tokens": input, "output_tokens": output,
		"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
	}
}

// signature stands where a real model signs its thinking.
const signature = "ZmFrZS1zaWduYXR1cmU="

// anthropicStream: message_start, blocks one after the other, message_delta, message_stop.
type anthropicStream struct {
	anthropicMessage
	sse   stream
	index int    // of the current block
	open  string // its type; empty where none is open
	tools int
}

func (a *anthropicStream) begin() {
	if a.sse.begun {
		return
	}
	a.sse.send("message_start", obj{"type": "message_start", "message": a.envelope([]obj{}, nil, 1)})
	a.sse.send("ping", obj{"type": "ping"})
}

func (a *anthropicStream) enter(kind string, block obj) {
	a.begin()
	if a.open == kind {
		return
	}
	a.leave()
	a.index++
	a.open = kind
	block["type"] = kind
	a.sse.send("content_block_start", obj{"type": "content_block_start", "index": a.index, "content_block": block})
}

func (a *anthropicStream) delta(d obj) {
	a.sse.send("content_block_delta", obj{"type": "content_block_delta", "index": a.index, "delta": d})
}

func (a *anthropicStream) leave() {
	if a.open == "" {
		return
	}
	if a.open == "thinking" {
		a.delta(obj{"type": "signature_delta", "signature": signature})
	}
	a.open = ""
	a.sse.send("content_block_stop", obj{"type": "content_block_stop", "index": a.index})
}

func (a *anthropicStream) think(d string) {
	a.enter("thinking", obj{"thinking": "", "signature": ""})
	a.delta(obj{"type": "thinking_delta", "thinking": d})
}

func (a *anthropicStream) text(d string) {
	a.enter("text", obj{"text": ""})
	a.delta(obj{"type": "text_delta", "text": d})
}

func (a *anthropicStream) tool(name string, args json.RawMessage) {
	a.leave()
	a.tools++
	a.enter("tool_use", obj{"id": fmt.Sprintf("toolu_fake%s_%d", a.id, a.tools), "name": name, "input": obj{}})
	for _, f := range fragments(args) {
		a.delta(obj{"type": "input_json_delta", "partial_json": f})
	}
	a.leave()
}

func (a *anthropicStream) fault() {
	a.begin()
	a.sse.send("error", obj{"type": "error", "error": obj{"type": "overloaded_error", "message": "fake overload"}})
}

func (a *anthropicStream) cut() { a.begin() }

func (a *anthropicStream) end(why stop, input, output int) {
	a.begin()
	a.leave()
	a.sse.send("message_delta", obj{
		"type":  "message_delta",
		"delta": obj{"stop_reason": anthropicStops[why], "stop_sequence": nil},
		"usage": anthropicUsage(input, output),
	})
	a.sse.send("message_stop", obj{"type": "message_stop"})
}

// anthropicWhole collects the reply.
type anthropicWhole struct {
	anthropicMessage
	w      http.ResponseWriter
	blocks []obj
	tools  int
}

// add lengthens the last block of the kind, or opens one.
func (a *anthropicWhole) add(kind, field, d string, extra obj) {
	if n := len(a.blocks); n > 0 && a.blocks[n-1]["type"] == kind {
		a.blocks[n-1][field] = a.blocks[n-1][field].(string) + d
		return
	}
	b := obj{"type": kind, field: d}
	for k, v := range extra {
		b[k] = v
	}
	a.blocks = append(a.blocks, b)
}

func (a *anthropicWhole) think(d string) {
	a.add("thinking", "thinking", d, obj{"signature": signature})
}
func (a *anthropicWhole) text(d string) { a.add("text", "text", d, nil) }

func (a *anthropicWhole) tool(name string, args json.RawMessage) {
	a.tools++
	a.blocks = append(a.blocks, obj{
		"type": "tool_use", "id": fmt.Sprintf("toolu_fake%s_%d", a.id, a.tools), "name": name, "input": args,
	})
}

func (a *anthropicWhole) fault() {
	writeJSON(a.w, 529, obj{"type": "error", "error": obj{"type": "overloaded_error", "message": "fake overload"}})
}

func (a *anthropicWhole) cut() { half(a.w, a.envelope(a.blocks, "end_turn", 1)) }

func (a *anthropicWhole) end(why stop, _, output int) {
	writeJSON(a.w, http.StatusOK, a.envelope(a.blocks, anthropicStops[why], output))
}
