package fakemodel

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestAttachmentsAreTold sends the same image by both APIs, with a document, and asks for it later.
func TestAttachmentsAreTold(t *testing.T) {
	const (
		png  = "[image/png 3 bytes 039058c6f2c0cb49]"  // of 01 02 03
		text = "[text/plain 5 bytes 2cf24dba5fb0a30e]" // of "hello"
	)
	for name, tc := range map[string]struct {
		path, content string
		want          []string
	}{
		"anthropic": {"/v1/messages", `[{"type":"text","text":"look"},
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQID"}},
			{"type":"document","source":{"type":"text","media_type":"text/plain","data":"hello"}},
			{"type":"image","source":{"type":"url","url":"http://x/y.png"}}]`,
			[]string{png, text, "[image by reference]"}},
		"openai": {"/v1/chat/completions", `[{"type":"text","text":"look"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}},
			{"type":"image_url","image_url":{"url":"http://x/y.png"}}]`,
			[]string{png, "[image by reference]"}},
		"no base64": {"/v1/messages", `[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"?"}}]`,
			[]string{"[image/png that is no base64]"}},
		"none": {"/v1/messages", `"look"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fake := New(Options{})
			messages := `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":` + tc.content +
				`},{"role":"assistant","content":"fine"},{"role":"user","content":"[[recall]]"}]}`
			w := httptest.NewRecorder()
			fake.ServeHTTP(w, httptest.NewRequest("POST", tc.path, strings.NewReader(messages)))
			if w.Code != 200 {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			for _, want := range tc.want {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("recalled %s, without %s", w.Body, want)
				}
			}
			seen := fake.Requests()[0]
			if !slices.Equal(seen.Attachments, tc.want) {
				t.Errorf("attachments %q, want %q", seen.Attachments, tc.want)
			}
			if len(seen.Users) != 2 {
				t.Errorf("users %q", seen.Users)
			}
		})
	}
}
