package fakemodel

import (
	"encoding/json"
	"strings"
)

// conversation is a request, whichever API it came by.
type conversation struct {
	model   string
	stream  bool
	usage   bool // a usage chunk was asked for (OpenAI)
	system  string
	users   []string // user texts with what was attached, oldest first
	files   []string // what is attached to any message, oldest first
	results []string // tool results after the last user text
	round   int      // model calls of this turn before this one
	tools   []string
	bytes   int // of all texts, for the input tokens
}

// user notes a text of the user. Harnesses add reminders of their own beside it; they are not the user's words.
func (c *conversation) user(text string) {
	c.bytes += len(text)
	if t := strings.TrimSpace(text); t == "" || strings.HasPrefix(t, "<system-reminder>") {
		return
	}
	c.users, c.results, c.round = append(c.users, text), nil, 0
}

func (c *conversation) result(text string) {
	c.bytes += len(text)
	c.results = append(c.results, text)
}

func (c *conversation) assistant(text string) {
	c.bytes += len(text)
	c.round++
}

// inputTokens is a plausible, reproducible count: a token for each four bytes.
func (c *conversation) inputTokens() int { return 1 + c.bytes/4 }

func (c *conversation) last() string {
	if len(c.users) == 0 {
		return ""
	}
	return c.users[len(c.users)-1]
}

func (c *conversation) offers(tool string) bool {
	for _, t := range c.tools {
		if t == tool {
			return true
		}
	}
	return false
}

// content is a string or a list of blocks, as both APIs allow.
type content []block

type block struct {
	Type     string  `json:"type"`
	Text     string  `json:"text"`
	Content  content `json:"content"`   // of a tool_result
	Source   *source `json:"source"`    // of an image or a document (Anthropic)
	ImageURL *image  `json:"image_url"` // of an image_url (OpenAI)
}

func (c *content) UnmarshalJSON(raw []byte) error {
	var s *string
	if json.Unmarshal(raw, &s) == nil {
		if s != nil {
			*c = content{{Type: "text", Text: *s}}
		}
		return nil
	}
	var blocks []block
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return err
	}
	*c = blocks
	return nil
}

// text joins the text blocks.
func (c content) text() string {
	var parts []string
	for _, b := range c {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// attached describes what is attached, each on a line of its own after the text.
func (c content) attached() []string {
	var out []string
	for _, b := range c {
		if d := b.attachment(); d != "" {
			out = append(out, d)
		}
	}
	return out
}

type anthropicRequest struct {
	Model    string  `json:"model"`
	Stream   bool    `json:"stream"`
	System   content `json:"system"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

func (r anthropicRequest) conversation() conversation {
	c := conversation{model: r.Model, stream: r.Stream, system: r.System.text()}
	c.bytes = len(c.system)
	for _, t := range r.Tools {
		c.tools = append(c.tools, t.Name)
	}
	for _, m := range r.Messages {
		if m.Role == "assistant" {
			c.assistant(m.Content.text())
			continue
		}
		if m.Role == "system" { // of a harness, in mid-conversation
			c.bytes += len(m.Content.text())
			continue
		}
		// Results come before text in one message; adjacent texts are one text.
		var texts []string
		files := m.Content.attached()
		for _, b := range m.Content {
			switch {
			case b.Type == "tool_result":
				c.result(b.Content.text())
			case b.Type == "text" && !strings.HasPrefix(strings.TrimSpace(b.Text), "<system-reminder>"):
				texts = append(texts, b.Text)
			}
		}
		c.user(strings.Join(append(texts, files...), "\n"))
		c.files = append(c.files, files...)
	}
	return c
}

type openAIRequest struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []struct {
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

func (r openAIRequest) conversation() conversation {
	c := conversation{model: r.Model, stream: r.Stream, usage: r.StreamOptions.IncludeUsage}
	for _, t := range r.Tools {
		c.tools = append(c.tools, t.Function.Name)
	}
	for _, m := range r.Messages {
		text := m.Content.text()
		switch m.Role {
		case "system", "developer":
			c.system = strings.TrimPrefix(c.system+"\n"+text, "\n")
			c.bytes += len(text)
		case "tool":
			c.result(text)
		case "assistant":
			c.assistant(text)
		case "user":
			files := m.Content.attached()
			c.user(strings.TrimPrefix(strings.Join(append([]string{text}, files...), "\n"), "\n"))
			c.files = append(c.files, files...)
		}
	}
	return c
}
