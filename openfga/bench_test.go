package openfga_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/harness-engine/harness-engine/engine/authz"
)

// measure reports the median and the 95th percentile of f in microseconds.
func measure(b *testing.B, f func()) {
	b.Helper()
	f()
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begin := time.Now()
		f()
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
}

func BenchmarkCheck(b *testing.B) {
	_, client := start(b)
	apply(b, client, authz.Agent("private"), tuple("user:olga", "owner", "agent:private"), tuple("user:rita", "runner", "agent:private"))
	for _, row := range []struct {
		name, user, permission string
		object                 authz.Object
		with                   []authz.Tuple
	}{
		{"direct", "user:olga", authz.CanView, authz.Agent("private"), nil},
		{"contextual", "user:rita", authz.CanView, authz.Run("r"), conversation},
		{"contextual and stored", "user:rita", authz.CanRun, authz.Session("s"), conversation[:2]},
		{"denied", "user:nina", authz.CanView, authz.Agent("private"), nil},
	} {
		for _, fresh := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/fresh=%v", row.name, fresh), func(b *testing.B) {
				measure(b, func() {
					_ = allowed(b, client, authz.Check{User: row.user, Relation: row.permission, Object: row.object, Contextual: row.with, Fresh: fresh})
				})
			})
		}
	}
}

func BenchmarkCheckAll(b *testing.B) {
	_, client := start(b)
	for _, n := range []int{30, 100} {
		var checks []authz.Check
		for i := range n {
			id := fmt.Sprintf("agt_%d_%d", n, i)
			apply(b, client, authz.Agent(id), authz.AgentTuples(id, "olga")...)
			checks = append(checks, authz.Check{User: "user:olga", Relation: authz.CanView, Object: authz.Agent(id)})
		}
		for _, fresh := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/fresh=%v", n, fresh), func(b *testing.B) {
				for i := range checks {
					checks[i].Fresh = fresh
				}
				measure(b, func() {
					if _, err := client.CheckAll(b.Context(), checks); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
	}
}

func BenchmarkApply(b *testing.B) {
	_, client := start(b)
	i := 0
	measure(b, func() {
		i++
		id := fmt.Sprintf("agt_%d", i)
		apply(b, client, authz.Agent(id), authz.AgentTuples(id, "olga")...)
	})
}
