package judge

import "slices"

// Answer is what a client was told once: a run, or why there is none. Answers that only ask to come again are none.
type Answer struct {
	Run  string
	Code string
}

// Ask is one request under an idempotency key, with every answer that came to it, in any order.
type Ask struct {
	Key     string
	Answers []Answer
	Differ  []Answer // to another request under the key, sent after an answer
}

// Codes of answers that say that the request's place was taken by another.
var taken = []string{"IDEMPOTENCY_CONFLICT", "INTERRUPT_CONFLICT", "NOT_FOUND", "CONFLICT"}

// CheckAsk: one key is one answer, and another request under it is refused. stored tells whether the store has a run.
func CheckAsk(a Ask, stored func(run string) bool) (f Findings) {
	if len(a.Answers) == 0 {
		return nil
	}
	first := a.Answers[0]
	for _, x := range a.Answers[1:] {
		switch {
		case x == first:
		case x.Run != "" && first.Run != "":
			f.add(Doubled, x.Run, "and run %s are both of the key %s", first.Run, a.Key)
		default:
			f.add(Other, first.Run+x.Run, "the key %s was answered %q and %q", a.Key, first, x)
		}
	}
	for _, x := range a.Answers {
		if x.Run != "" && !stored(x.Run) {
			f.add(Lost, x.Run, "was acknowledged for the key %s, and is not there", a.Key)
			break
		}
	}
	for _, x := range a.Differ {
		if x.Run != "" || !slices.Contains(taken, x.Code) {
			f.add(Other, x.Run, "another request under the key %s was answered %q", a.Key, x)
		}
	}
	return f
}

// Stored is a run of the store with what was asked.
type Stored struct {
	Run, Text string
	Continues string // the run that it goes on from
}

// CheckOnce: no key has two runs, and no interrupted run goes on twice. keyOf finds the key in a run's text, or "".
func CheckOnce(runs []Stored, keyOf func(text string) string) (f Findings) {
	keys, continued := map[string]string{}, map[string]string{}
	for _, r := range runs {
		if k := keyOf(r.Text); k != "" {
			if other, twice := keys[k]; twice {
				f.add(Doubled, r.Run, "and run %s are both of the key %s", other, k)
			}
			keys[k] = r.Run
		}
		if r.Continues != "" {
			if other, twice := continued[r.Continues]; twice {
				f.add(Doubled, r.Run, "and run %s both go on from run %s", other, r.Continues)
			}
			continued[r.Continues] = r.Run
		}
	}
	return f
}
