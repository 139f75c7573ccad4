package acp

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// update is the union of the fields of a session update that the driver reads. Unread fields are not decoded.
type update struct {
	SessionUpdate string          `json:"sessionUpdate"`
	Meta          json.RawMessage `json:"_meta"`

	// agent_message_chunk, agent_thought_chunk; for tool calls, a list
	MessageID string          `json:"messageId"`
	Content   json.RawMessage `json:"content"`

	// tool_call, tool_call_update
	ToolCallID string          `json:"toolCallId"`
	Name       string          `json:"name"`
	Title      string          `json:"title"` // also notice, session_info_update
	Kind       string          `json:"kind"`
	Status     string          `json:"status"`
	RawInput   json.RawMessage `json:"rawInput"`
	RawOutput  json.RawMessage `json:"rawOutput"`

	// plan
	Entries []planEntry `json:"entries"`

	// usage_update
	Used *float64 `json:"used"`
	Size *float64 `json:"size"`
	Cost *cost    `json:"cost"`

	// current_mode_update, available_commands_update
	CurrentModeID     string            `json:"currentModeId"`
	AvailableCommands []json.RawMessage `json:"availableCommands"`
}

type planEntry struct {
	Content  string `json:"content"`
	Status   string `json:"status"`
	Priority string `json:"priority"`
}

type cost struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
}

// tokens are counts of a turn, as the protocol's unstable `usage` names them; absent is unknown.
type tokens struct {
	Input  *int64 `json:"inputTokens"`
	Output *int64 `json:"outputTokens"`
	Cached *int64 `json:"cachedReadTokens"`
	Reason *int64 `json:"thoughtTokens"`
}

// contentBlock is one block of content; only text is shown.
type contentBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// toolContent is one entry of a tool call's content.
type toolContent struct {
	Type    string       `json:"type"` // content, diff, terminal
	Content contentBlock `json:"content"`
	Path    string       `json:"path"`
}

// shownText gives the text of a tool call's content list, and whether there was any entry at all.
func shownText(raw json.RawMessage) (string, bool) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return "", false
	}
	var parts []string
	for _, each := range list {
		var c toolContent
		if json.Unmarshal(each, &c) != nil {
			continue
		}
		switch {
		case c.Type == "content" && c.Content.Type == "text":
			parts = append(parts, c.Content.Text)
		case c.Type == "content" && c.Content.Type != "":
			parts = append(parts, "["+c.Content.Type+"]")
		case c.Type == "diff":
			parts = append(parts, "[diff of "+c.Path+"]")
		}
	}
	return strings.Join(parts, "\n"), len(parts) > 0
}

// rawText gives a raw output as text: a string as it is, anything else as JSON.
func rawText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// absent reports whether a raw value says nothing: missing, null or an empty object.
func absent(raw json.RawMessage) bool {
	trimmed := bytes.TrimSpace(raw)
	return len(trimmed) == 0 || string(trimmed) == "null" || isEmptyObject(trimmed)
}

func isEmptyObject(raw []byte) bool {
	return len(raw) >= 2 && raw[0] == '{' && raw[len(raw)-1] == '}' && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
}

// arguments turns a raw input into a JSON object that an event may hold; what is not an object becomes its field
// "input". The second result is false where the input is too large or too deep to be shown.
func arguments(raw json.RawMessage) (json.RawMessage, bool) {
	if len(raw) > 2*maxArguments {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || !plainValue(v, 1) {
		return nil, false
	}
	object, ok := v.(map[string]any)
	if !ok {
		object = map[string]any{"input": v}
	}
	out, err := encodeObject(object)
	if err != nil || len(out) > maxArguments {
		return nil, false
	}
	return out, true
}

// plainValue reports whether a decoded value nests within bounds and holds only numbers that a float64 holds.
func plainValue(v any, depth int) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, each := range v {
			if !plainValue(each, depth+1) {
				return false
			}
		}
	case []any:
		for _, each := range v {
			if !plainValue(each, depth+1) {
				return false
			}
		}
	case json.Number:
		f, err := strconv.ParseFloat(v.String(), 64)
		return err == nil && !math.IsInf(f, 0)
	}
	return depth <= maxJSONDepth
}

func encodeObject(object map[string]any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(object); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// label makes text fit where events want an id, a name or a word: no control characters, at most max bytes.
func label(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || (r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.TrimSpace(cut(s, max))
}

// cut shortens valid text to at most max bytes, on a rune.
func cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max]
}

// pieces splits text into pieces of at most max bytes, on runes where the text is valid.
func pieces(s string, max int) []string {
	var out []string
	for len(s) > max {
		n := len(cut(s, max))
		if n == 0 {
			n = max
		}
		out = append(out, s[:n])
		s = s[n:]
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}
