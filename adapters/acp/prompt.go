package acp

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/event"
	"github.com/harness-engine/harness-engine/engine/harness"
	"github.com/harness-engine/harness-engine/worker"
)

type promptParams struct {
	SessionID string        `json:"sessionId"`
	Prompt    []promptBlock `json:"prompt"`
	Meta      any           `json:"_meta,omitempty"`
}

// promptBlock is one content block of a prompt.
type promptBlock struct {
	Type     string          `json:"type"` // text, image, resource
	Text     string          `json:"text,omitempty"`
	MimeType string          `json:"mimeType,omitempty"`
	Data     string          `json:"data,omitempty"` // base64
	Resource *promptResource `json:"resource,omitempty"`
}

// promptResource is a text document inside of a prompt.
type promptResource struct {
	URI      string `json:"uri"`
	MimeType string `json:"mimeType,omitempty"`
	Text     string `json:"text"`
}

// promptCapabilities are the content blocks that an agent takes, beside text.
type promptCapabilities struct {
	Image           bool `json:"image"`
	EmbeddedContext bool `json:"embeddedContext"`
}

// prompt makes the content of a user's message: what was attached, then what was said.
func (c promptCapabilities) prompt(t harness.Turn) ([]promptBlock, error) {
	blocks := []promptBlock{}
	for _, f := range t.Files {
		b, err := c.block(f)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	if t.Text != "" || len(blocks) == 0 {
		blocks = append(blocks, promptBlock{Type: "text", Text: t.Text})
	}
	return blocks, nil
}

func (c promptCapabilities) block(f harness.File) (promptBlock, error) {
	switch {
	case strings.HasPrefix(f.MediaType, "image/"):
		if !c.Image {
			return promptBlock{}, unsupportedFile("The harness does not take images.")
		}
		return promptBlock{Type: "image", MimeType: f.MediaType, Data: base64.StdEncoding.EncodeToString(f.Data)}, nil
	case !c.EmbeddedContext:
		return promptBlock{}, unsupportedFile("The harness does not take documents.")
	case !utf8.Valid(f.Data):
		return promptBlock{}, unsupportedFile("An attached document is not text in UTF-8.")
	}
	return promptBlock{Type: "resource", Resource: &promptResource{
		URI: "attachment:///" + url.PathEscape(f.Name), MimeType: f.MediaType, Text: string(f.Data),
	}}, nil
}

func unsupportedFile(message string) error {
	return &worker.Failure{Category: event.CategoryConfiguration, Code: "attachment_not_supported", Message: message}
}

// outcome is how a prompt ended.
type outcome struct {
	stopReason string
	interrupt  *event.InterruptRequested // a person has to decide
	reason     string                    // of the interrupt
}

// promptResult is the answer to session/prompt. Usage is an unstable field of the protocol that agents do send.
type promptResult struct {
	StopReason string          `json:"stopReason"`
	Usage      *tokens         `json:"usage"`
	Meta       json.RawMessage `json:"_meta"`
}
