package fakemodel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// stop is why a model stopped, in this package's words.
type stop string

const (
	stopEnd       stop = "end"
	stopTool      stop = "tool"
	stopMaxTokens stop = "max_tokens"
	stopRefusal   stop = "refusal"
)

// stopReasons maps the argument of [[stop]].
var stopReasons = map[string]stop{"max_tokens": stopMaxTokens, "refusal": stopRefusal}

// answer is one reply in the form of one API, streamed or collected.
type answer interface {
	think(delta string)
	text(delta string)
	tool(name string, args json.RawMessage)
	// fault tells, inside a stream that has begun, that the provider is overloaded.
	fault()
	// cut leaves the reply visibly incomplete; the caller then drops the connection.
	cut()
	end(why stop, inputTokens, outputTokens int)
}

// player runs one reply.
type player struct {
	ctx   context.Context
	delay time.Duration
	out   answer
	conv  conversation

	attempt int // of replies to the same, where some of them are cut or hang

	words int // output tokens
	spoke bool
	why   stop
}

// serve plays the reply to a conversation.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, c conversation, out answer) {
	steps, err := choose(c)
	if err != nil {
		fail(w, r, http.StatusBadRequest, "fake model: "+err.Error())
		return
	}
	for _, st := range steps {
		if st.do == doHTTP {
			if st.pause > 0 {
				w.Header().Set("Retry-After", fmt.Sprint(int(st.pause.Seconds())))
			}
			fail(w, r, st.n, fmt.Sprintf("fake error %d", st.n))
			return
		}
	}
	p := &player{ctx: r.Context(), delay: s.opts.DeltaDelay, out: out, conv: c, why: stopEnd}
	if slices.ContainsFunc(steps, func(st step) bool { return (st.do == doCut || st.do == doHang) && st.n > 0 }) {
		p.attempt = s.attempt(c)
	}
	if steps == nil {
		p.sayAll(defaultReply(c))
	}
	for _, st := range steps {
		if !p.step(st) {
			return
		}
	}
	if !p.spoke {
		p.sayAll(sentence)
	}
	out.end(p.why, c.inputTokens(), p.words)
}

// choose picks the steps for this model call of the turn; nil means the default reply.
func choose(c conversation) ([]step, error) {
	s, err := parse(c.last())
	if err != nil {
		return nil, err
	}
	round := 0
	if len(c.results) > 0 {
		round = max(c.round, 1)
	}
	if round >= len(s) || len(s[round]) == 0 {
		return nil, nil
	}
	return s[round], nil
}

// defaultReply is what the endpoint says when the script is silent.
func defaultReply(c conversation) []string {
	if len(c.results) > 0 {
		return []string{"TOOL-RESULT-SEEN: ", cutRunes(strings.Join(c.results, " | "), 400)}
	}
	if c.last() == "" {
		return sentence
	}
	return append([]string{"You ", "said: "}, strings.SplitAfter(cutRunes(c.last(), 4000), " ")...)
}

// step runs one step and reports whether the reply goes on.
func (p *player) step(st step) bool {
	switch st.do {
	case doText:
		if st.n == 0 {
			return p.sayAll(sentence)
		}
		for i := 1; i <= st.n; i++ {
			if !p.say(fmt.Sprintf("word%d ", i)) {
				return false
			}
		}
	case doThink:
		for _, t := range []string{"I am ", "thinking."} {
			p.words++
			p.out.think(t)
		}
	case doSlow:
		for i := range st.n {
			if !p.pause(st.pause) || !p.say(fmt.Sprintf("tick%d ", i)) {
				return false
			}
		}
	case doTool:
		if !p.conv.offers(st.name) {
			return p.say("NO-SUCH-TOOL " + st.name + " among " + cutRunes(strings.Join(p.conv.tools, ","), 400))
		}
		p.words++
		p.out.tool(st.name, st.args)
		p.spoke, p.why = true, stopTool
	case doRecall:
		earlier := p.conv.users[:max(len(p.conv.users)-1, 0)]
		return p.say("RECALL: ") && p.say(cutRunes(strings.Join(earlier, " | "), 16_000))
	case doWait:
		return p.pause(st.pause)
	case doStop:
		p.why = stopReasons[st.name]
	case doError:
		p.out.fault()
		return false
	case doHang:
		if st.n > 0 && p.attempt > st.n {
			return true
		}
		<-p.ctx.Done()
		return false
	case doCut:
		if st.n > 0 && p.attempt > st.n {
			return true
		}
		p.out.cut()
		panic(http.ErrAbortHandler) // the way to drop the connection without an end of the body
	}
	return p.ctx.Err() == nil
}

func (p *player) sayAll(deltas []string) bool {
	for _, d := range deltas {
		if !p.say(d) {
			return false
		}
	}
	return true
}

func (p *player) say(delta string) bool {
	if !p.pause(p.delay) {
		return false
	}
	p.words++
	p.spoke = true
	p.out.text(delta)
	return true
}

// pause waits, and reports false when the client left meanwhile.
func (p *player) pause(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func cutRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// fragments cuts the JSON text of arguments as a model streams it.
func fragments(args json.RawMessage) []string {
	const size = 24
	var out []string
	for s := string(args); s != ""; {
		f := cutRunes(s, size)
		out, s = append(out, f), s[len(f):]
	}
	return out
}

// stream writes server-sent events, each flushed at once.
type stream struct {
	w     http.ResponseWriter
	begun bool
}

func (s *stream) send(event string, v any) {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		s.w.Header().Set("Cache-Control", "no-cache")
	}
	if event != "" {
		_, _ = fmt.Fprintf(s.w, "event: %s\n", event)
	}
	if text, ok := v.(string); ok {
		_, _ = fmt.Fprintf(s.w, "data: %s\n\n", text)
	} else {
		raw, _ := json.Marshal(v) // maps of scalars and valid raw JSON
		_, _ = fmt.Fprintf(s.w, "data: %s\n\n", raw)
	}
	_ = http.NewResponseController(s.w).Flush()
}

// half writes the first half of a JSON body, for a cut reply that is not a stream.
func half(w http.ResponseWriter, v any) {
	raw, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
	_, _ = w.Write(raw[:len(raw)/2])
	_ = http.NewResponseController(w).Flush()
}
