// Command schemacheck compares two versions of the GraphQL schema and fails where the newer one breaks clients of the
// older, or opens a field without a word: schemacheck OLD NEW. It prints each change on a line, the worst first.
package main

import (
	"fmt"
	"os"

	"github.com/harness-engine/harness-engine/internal/schemadiff"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: schemacheck OLD NEW")
		os.Exit(2)
	}
	failed, err := check(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "schemacheck:", err)
		os.Exit(2)
	}
	if failed > 0 {
		fmt.Fprintf(os.Stderr, "schemacheck: %d changes that must not be released\n", failed)
		os.Exit(1)
	}
}

// check prints the changes and counts those that must not be.
func check(oldFile, newFile string) (failed int, err error) {
	before, err := os.ReadFile(oldFile)
	if err != nil {
		return 0, err
	}
	after, err := os.ReadFile(newFile)
	if err != nil {
		return 0, err
	}
	changes, err := schemadiff.Compare(string(before), string(after))
	if err != nil {
		return 0, err
	}
	for _, c := range changes {
		fmt.Println(c)
		if c.Level.Fails() {
			failed++
		}
	}
	fmt.Printf("%d changes to know of, %d that must not be released\n", len(changes), failed)
	return failed, nil
}
