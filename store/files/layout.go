package files

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/harness-engine/harness-engine/engine/blob"
	"github.com/harness-engine/harness-engine/store"
)

// spacePattern keeps a space's name from being anything but one name, on file systems that ignore case too: what comes
// after the dot is an identifier, and the folder's name for it has no capital letter.
var spacePattern = regexp.MustCompile(`^[a-z]{1,32}(\.[a-z0-9_-]{1,128})?$`)

const hashChars = 2 * sha256.Size

// place is where a space has its blobs.
//
//	attachments    attachments/ab/cd/abcd…       two levels by the hash
//	threads.ses_1  threads.sub/f0/ses_1/abcd…    one level by the hash of the space's name: the spaces are many,
//	                                             the blobs in one are few
type place struct {
	base string // path of the space's folder
	flat bool
}

func (s *Store) place(space blob.Space) (place, error) {
	if !spacePattern.MatchString(string(space)) {
		return place{}, fmt.Errorf("%w: space must be a word of a-z, and after a dot a name of a-z, 0-9, _ and -", store.ErrInvalid)
	}
	whole, part, divided := strings.Cut(string(space), ".")
	if !divided {
		return place{base: filepath.Join(s.root, whole)}, nil
	}
	sum := sha256.Sum256([]byte(part))
	return place{base: filepath.Join(s.root, whole+".sub", hex.EncodeToString(sum[:1]), part), flat: true}, nil
}

// folder is the path of the folder that holds a blob.
func (p place) folder(hash string) string {
	if p.flat {
		return p.base
	}
	return filepath.Join(p.base, hash[:2], hash[2:4])
}

// file is the path of a blob.
func (p place) file(hash string) string { return filepath.Join(p.folder(hash), hash) }

// isHash reports whether s is a SHA-256 in lower-case hexadecimal.
func isHash(s string) bool {
	if len(s) != hashChars {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

func checkHash(hash string) error {
	if !isHash(hash) {
		return fmt.Errorf("%w: hash must be %d hexadecimal digits in lower case", store.ErrInvalid, hashChars)
	}
	return nil
}
