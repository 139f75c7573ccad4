package fakemodel

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// source is where Anthropic's Messages keep the content of an image or a document.
type source struct {
	Type      string `json:"type"` // base64, text, url
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// image is where OpenAI's Chat Completions keep an image: a data URL, or another.
type image struct {
	URL string `json:"url"`
}

// attachment describes what a block attaches, so that an answer can tell it: `[image/png 67 bytes 0123456789abcdef]`,
// with the beginning of its SHA-256. Empty for a block that attaches nothing.
func (b block) attachment() string {
	switch {
	case b.Source != nil && b.Source.Type == "base64":
		return describeBase64(b.Source.MediaType, b.Source.Data)
	case b.Source != nil && b.Source.Type == "text":
		return describe(b.Source.MediaType, []byte(b.Source.Data))
	case b.Source != nil:
		return "[" + cutRunes(b.Type, 40) + " by reference]"
	case b.ImageURL != nil:
		kind, data, ok := strings.Cut(strings.TrimPrefix(b.ImageURL.URL, "data:"), ";base64,")
		if !ok {
			return "[image by reference]"
		}
		return describeBase64(kind, data)
	}
	return ""
}

func describeBase64(mediaType, text string) string {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "[" + cutRunes(mediaType, 100) + " that is no base64]"
	}
	return describe(mediaType, data)
}

func describe(mediaType string, data []byte) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("[%s %d bytes %s]", cutRunes(mediaType, 100), len(data), hex.EncodeToString(sum[:8]))
}
