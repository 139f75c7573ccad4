package driver

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/harness-engine/harness-engine/engine/harness"
)

// received is what can be said of files without looking into them, a file a line.
func received(files []harness.File) string {
	var b strings.Builder
	for i, f := range files {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s, %d bytes, sha256 %x", f.Name, f.MediaType, len(f.Data), sha256.Sum256(f.Data))
	}
	return b.String()
}
