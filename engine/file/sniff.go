package file

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"mime"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/harness-engine/harness-engine/engine/problem"
)

// Media types.
const (
	typeText     = "text/plain"
	typeMarkdown = "text/markdown"
	typeCSV      = "text/csv"
	typeJSON     = "application/json"
	typeUnknown  = "application/octet-stream"
)

// byExtension are the types of text that a name tells.
var byExtension = map[string]string{".md": typeMarkdown, ".markdown": typeMarkdown, ".csv": typeCSV, ".json": typeJSON}

// declaredType checks what the client says; empty where it leaves the type to the content.
func declaredType(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	kind, params, err := mime.ParseMediaType(s)
	if err != nil {
		return "", problem.Field("mediaType", "is not a media type")
	}
	if kind == typeUnknown {
		return "", nil
	}
	if _, ok := MediaTypes[kind]; !ok {
		return "", problem.Field("mediaType", "is not a type that can be attached")
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return "", problem.Field("mediaType", "must be in UTF-8")
	}
	return kind, nil
}

// typeOf says what the content is. A declared type must be it: an image of that type, or text that is well-formed.
func typeOf(declared, name string, content []byte) (string, error) {
	image := imageType(content)
	switch {
	case image != "" && declared != "" && image != declared:
		return "", problem.Field("mediaType", "is %s, but the content is %s", declared, image)
	case image != "":
		return image, nil
	case strings.HasPrefix(declared, "image/"):
		return "", problem.Field("mediaType", "is %s, but the content is not", declared)
	case !utf8.Valid(content):
		return "", problem.Field("body", "is neither an image of a known type nor text in UTF-8")
	case bytes.IndexFunc(content, binaryRune) >= 0:
		return "", problem.Field("body", "is not text: it holds control characters")
	}
	if declared == "" {
		declared = typeText
		if t, ok := byExtension[strings.ToLower(path.Ext(name))]; ok {
			declared = t
		}
	}
	if declared == typeJSON && !json.Valid(content) {
		return "", problem.Field("body", "is not JSON")
	}
	return declared, nil
}

// binaryRune finds what text does not hold.
func binaryRune(r rune) bool {
	return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' && r != '\f' && r != '\u0085'
}

// imageType tells an image by its first bytes; empty where it is none of those that can be attached.
func imageType(b []byte) string {
	switch {
	// PNG, third edition, 5.2 and 11.2.1: the signature, then the header chunk.
	case len(b) >= 24 && string(b[:8]) == "\x89PNG\r\n\x1a\n" && string(b[12:16]) == "IHDR":
		return "image/png"
	// ITU T.81, B.2.1: start of image, then a marker.
	case len(b) >= 4 && b[0] == 0xFF && b[1] == 0xD8 && b[2] == 0xFF && b[3] >= 0xC0:
		return "image/jpeg"
	// GIF89a, 17 and 18: signature, version, screen descriptor.
	case len(b) >= 13 && (string(b[:6]) == "GIF87a" || string(b[:6]) == "GIF89a"):
		return "image/gif"
	// RFC 9649, 2.3 to 2.5: a RIFF container of that size whose first chunk is one of three.
	case len(b) >= 20 && string(b[:4]) == "RIFF" && string(b[8:15]) == "WEBPVP8" && strings.IndexByte(" LX", b[15]) >= 0 &&
		int64(binary.LittleEndian.Uint32(b[4:8]))+8 <= int64(len(b)):
		return "image/webp"
	}
	return ""
}

// checkFileName refuses names that are paths, deceive, or cannot be shown.
func checkFileName(name string) error {
	switch {
	case !utf8.ValidString(name):
		return problem.Field("name", "is not valid UTF-8")
	case len(name) > MaxNameBytes:
		return problem.Field("name", "is %d bytes, at most %d are allowed", len(name), MaxNameBytes)
	case strings.ContainsAny(name, `/\`), name == ".", name == "..":
		return problem.Field("name", "must be a name without a path")
	case strings.TrimSpace(name) == "":
		return problem.Field("name", "must hold a visible character")
	}
	for _, r := range name {
		if !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r) {
			return problem.Field("name", "holds the unprintable character %U", r)
		}
	}
	return nil
}
