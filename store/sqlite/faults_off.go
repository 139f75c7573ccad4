//go:build !faults

package sqlite

// faults cause failures of the store in builds with the tag faults, see faults_on.go. In every other build there are
// none: the calls are empty and cost nothing.
type faults struct{}

func loadFaults(*Options) (*faults, error) { return nil, nil }

func (*faults) begin() error   { return nil }
func (*faults) ending() string { return commitGroup }
func (*faults) answer() error  { return nil }

// freeBytes is what an imitated disk has free; ok where there is one.
func (*faults) freeBytes() (free int64, ok bool) { return 0, false }
