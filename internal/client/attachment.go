package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
)

// Attachment is an uploaded file that messages can name.
type Attachment struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	MediaType string `json:"mediaType"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"`
}

// Upload sends a file to the engine. The same content again is the same content there.
func (c *Client) Upload(ctx context.Context, name, mediaType string, data []byte) (Attachment, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {fmt.Sprintf(`form-data; name="file"; filename="%s"`, quoted.Replace(name))},
		"Content-Type":        {mediaType},
	})
	if err == nil {
		_, err = part.Write(data)
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		return Attachment{}, fmt.Errorf("failed to encode file %s: %w", name, err)
	}
	header := http.Header{"Content-Type": {form.FormDataContentType()}, "X-Harness-Csrf": {"1"}}
	status, raw, err := c.send(ctx, "/v1/attachments", header, &body)
	if err != nil {
		return Attachment{}, err
	}
	if status != http.StatusOK && status != http.StatusCreated {
		return Attachment{}, problem(status, raw)
	}
	var a Attachment
	if err := json.Unmarshal(raw, &a); err != nil || a.ID == "" {
		return Attachment{}, fmt.Errorf("failed to decode the answer to an upload (status %d): %.200s", status, raw)
	}
	return a, nil
}

// quoted escapes what would end a quoted file name (RFC 7578, section 4.2, as browsers do it).
var quoted = strings.NewReplacer(`"`, "%22", "\r", "%0D", "\n", "%0A")

// problem is the error that a refused request tells of.
func problem(status int, raw []byte) error {
	var p struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Detail  string `json:"detail"`
		Field   string `json:"field"`
		Errors  Errors `json:"errors"`
	}
	_ = json.Unmarshal(raw, &p) // what is no JSON tells nothing
	if len(p.Errors) > 0 {
		return p.Errors
	}
	message := p.Message + p.Detail
	if message == "" {
		message = fmt.Sprintf("the engine answered %d", status)
	}
	return Errors{{Message: message, Extensions: ErrorExtensions{Code: p.Code, Field: p.Field}}}
}
