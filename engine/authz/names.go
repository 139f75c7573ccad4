package authz

import (
	"strings"

	"github.com/harness-engine/harness-engine/engine/id"
)

// String is the object as tuples name it, for instance "agent:agt_01".
func (o Object) String() string { return o.Type + ":" + o.ID }

// Agent, Session, Run and Harness name an object of that type; Platform names the one platform.
func Agent(id string) Object   { return Object{Type: TypeAgent, ID: id} }
func Session(id string) Object { return Object{Type: TypeSession, ID: id} }
func Run(id string) Object     { return Object{Type: TypeRun, ID: id} }
func Harness(id string) Object { return Object{Type: TypeHarness, ID: id} }
func Platform() Object         { return Object{Type: TypePlatform, ID: PlatformID} }

// validSubject reports whether s is a subject: [A-Za-z0-9._@-]{1,128}. So "*" is none.
func validSubject(s string) bool { return named(s, "._@-") }

// validID reports whether s may be the id of an object: [A-Za-z0-9._-]{1,128}. The characters that OpenFGA gives a
// meaning (: # * and white space) are not among them.
func validID(s string) bool { return named(s, "._-") }

func named(s, marks string) bool {
	if s == "" || len(s) > id.MaxLength {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(marks, c) < 0 {
			return false
		}
	}
	return true
}
