package folder

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// BenchmarkPack packs text as harnesses write it: lines of JSON.
func BenchmarkPack(b *testing.B) {
	for _, mib := range []int{1, 16} {
		b.Run(fmt.Sprint(mib, "MiB"), func(b *testing.B) {
			dir := b.TempDir()
			var text bytes.Buffer
			for i := 0; text.Len() < mib<<20; i++ {
				fmt.Fprintf(&text, `{"n":%d,"id":"%x","role":"assistant","text":"line %d of a conversation"}`+"\n", i, i*2654435761, i%97)
			}
			write(b, dir, "session.jsonl", text.String(), 0o600)
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				if err := Pack(b.Context(), io.Discard, dir, []string{"session.jsonl"}, Limits{Packed: 64 << 20, Content: 64 << 20, Entries: 9}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
