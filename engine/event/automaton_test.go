package event

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The reference automaton: a second judge of streams that shares no code with the Validator. It keeps the history as
// words, one alphabet for each thing that has a life of its own, and judges by regular expressions over these words.
// A token is legal when every word that it would lengthen still matches.

// token is an abstract event.
type token struct {
	typ    string
	ns     string // "", "a", "a/b"
	id     string
	parent string // of an entered namespace: its tool call
	code   string // of a tool.error
	text   string // of a delta
	gen    int64
	stated string // side effects of a terminal
}

func (k token) String() string {
	s := k.typ + "@" + k.ns + ":" + k.id
	if k.typ == "run.recovered" {
		s += "#" + strconv.FormatInt(k.gen, 10)
	}
	if k.code != "" {
		s += "!" + k.code
	}
	if k.text != "" {
		s += "=" + k.text
	}
	if k.stated != "" {
		s += "~" + k.stated
	}
	return s
}

type automaton struct {
	limit int               // bytes of a delta
	words map[string]string // by the thing's key
	order []string          // keys in order of their first letter
	gens  []int64
}

func newAutomaton(limit int) *automaton {
	return &automaton{limit: limit, words: map[string]string{}}
}

// The letters of the words. In spans, calls and namespaces each letter is followed by the digit of its namespace.
var (
	reLife      = regexp.MustCompile(`^(B[or]*T?)?$`)
	reInterrupt = regexp.MustCompile(`^[^i]*(i[crkz]*)?$`)                   // i, then closings, recoveries, cuts, its end
	reCut       = regexp.MustCompile(`^[^X]*(X[Xxr]*z?)?$`)                  // a cut, then cuts, exits, recoveries, a hard end
	reSpan      = regexp.MustCompile(sameDigit(`s#(d#)*(f#)?`))              // started, deltas, finished
	reTool      = regexp.MustCompile(sameDigit(`s#(a#)*([fe]#)?`))           // started, arguments, one end
	reOpen      = regexp.MustCompile(`^s\d([ad]\d)*$`)                       // a span or call that is open
	reSpace     = regexp.MustCompile(`^(ex)*e?$`)                            // entered and exited by turns
	reNoTool    = regexp.MustCompile(`^s`)                                   // a call that was started
	spaceDigits = map[string]string{"": "0", "a": "1", "a/b": "2", "c": "3"} // the paths that tests use
)

// sameDigit repeats a pattern for each namespace, for regular expressions cannot compare.
func sameDigit(p string) string {
	var all []string
	for d := range 4 {
		all = append(all, strings.ReplaceAll(p, "#", strconv.Itoa(d)))
	}
	return "^(" + strings.Join(all, "|") + ")?$"
}

// letters says by which letter a type enters which kind of word.
var letters = map[string]struct{ kind, letter string }{
	"text.started": {"text", "s"}, "text.delta": {"text", "d"}, "text.finished": {"text", "f"},
	"reasoning.started": {"reasoning", "s"}, "reasoning.delta": {"reasoning", "d"}, "reasoning.finished": {"reasoning", "f"},
	"tool.started": {"tool", "s"}, "tool.arguments.delta": {"tool", "a"}, "tool.finished": {"tool", "f"}, "tool.error": {"tool", "e"},
}

func (a *automaton) isOpen(key string) bool { return reOpen.MatchString(a.words[key]) }

// spaceOpen reports whether a path is the root or entered.
func (a *automaton) spaceOpen(path string) bool {
	return path == "" || strings.HasSuffix(a.words["space "+path], "e")
}

// under lists the open things of the kinds that live in path or below it.
func (a *automaton) under(path string, kinds ...string) (out []string) {
	for _, key := range a.order {
		kind, _, _ := strings.Cut(key, " ")
		if !slices.Contains(kinds, kind) || !a.isOpen(key) {
			continue
		}
		home := a.homeOf(key)
		if path == "" || home == path || strings.HasPrefix(home, path+"/") {
			out = append(out, key)
		}
	}
	return out
}

// homeOf is the namespace of a span's or call's first letter.
func (a *automaton) homeOf(key string) string {
	for path, digit := range spaceDigits {
		if a.words[key][1:2] == digit {
			return path
		}
	}
	panic("no digit in " + key)
}

// openSpaces lists the entered paths in the order in which each was entered last.
func (a *automaton) openSpaces() []string {
	var out []string
	for _, path := range strings.Fields(a.words["entries"]) {
		if a.spaceOpen(path) {
			out = slices.DeleteFunc(out, func(p string) bool { return p == path })
			out = append(out, path)
		}
	}
	return out
}

// cut reports whether a token is one by which the engine cuts off what is open.
func (a *automaton) cut(k token) bool {
	return k.typ == "tool.error" && k.code == "run_ended" ||
		k.typ == "namespace.exited" && strings.ContainsAny(a.words["interrupt"]+a.words["cut"], "iX")
}

// grow returns the words that k lengthens, or false when one of them no longer matches.
func (a *automaton) grow(k token) (map[string]string, bool) {
	next := map[string]string{}
	add := func(key, letter string, re *regexp.Regexp) bool {
		next[key] = a.words[key] + letter
		return re.MatchString(next[key])
	}
	terminal := strings.HasPrefix(k.typ, "run.") && k.typ != "run.started" && k.typ != "run.recovered"
	hard := k.typ == "run.error" || k.typ == "run.cancelled"
	cut := a.cut(k)

	life := "o"
	switch {
	case k.typ == "run.started":
		life = "B"
	case k.typ == "run.recovered":
		life = "r"
	case terminal:
		life = "T"
	}
	ok := add("life", life, reLife)

	pause := "o"
	switch {
	case k.typ == "interrupt.requested":
		pause = "i"
	case k.typ == "text.finished" || k.typ == "reasoning.finished":
		pause = "c"
	case k.typ == "run.recovered":
		pause = "r"
	case cut:
		pause = "k"
	case hard || k.typ == "run.interrupted":
		pause = "z"
	}
	ok = add("interrupt", pause, reInterrupt) && ok

	off := "o"
	switch {
	case cut && k.typ == "tool.error":
		off = "X"
	case cut:
		off = "X"
	case k.typ == "run.recovered":
		off = "r"
	case hard:
		off = "z"
	}
	ok = add("cut", off, reCut) && ok

	if strings.HasPrefix(k.typ, "run.") && k.ns != "" || !a.spaceOpen(k.ns) {
		return nil, false
	}
	if l, in := letters[k.typ]; in {
		re := reSpan
		if l.kind == "tool" {
			re = reTool
		}
		ok = add(l.kind+" "+k.id, l.letter+spaceDigits[k.ns], re) && ok
	}
	path := strings.TrimPrefix(k.ns+"/"+k.id, "/")
	switch k.typ {
	case "run.recovered":
		ok = ok && (len(a.gens) == 0 || k.gen > slices.Max(a.gens)) && k.gen > 0
	case "namespace.entered":
		parent := "tool " + k.parent
		ok = add("space "+path, "e", reSpace) && ok && a.isOpen(parent) && a.homeOf(parent) == k.ns
		next["entries"] = a.words["entries"] + " " + path
	case "namespace.exited":
		ok = add("space "+path, "x", reSpace) && ok && len(a.under(path, "text", "reasoning", "tool")) == 0
		for _, other := range a.openSpaces() {
			ok = ok && !strings.HasPrefix(other, path+"/")
		}
	case "interrupt.requested":
		next["asked"] = k.id
	case "run.interrupted":
		ok = ok && a.words["asked"] == k.id && k.id != ""
	case "run.finished":
		ok = ok && len(a.under("", "tool")) == 0 && len(a.openSpaces()) == 0
	}
	return next, ok
}

func (a *automaton) take(k token, next map[string]string) {
	for key, word := range next {
		if a.words[key] == "" {
			a.order = append(a.order, key)
		}
		a.words[key] = word
	}
	if k.typ == "run.recovered" {
		a.gens = append(a.gens, k.gen)
	}
	if a.cut(k) && k.typ == "tool.error" {
		a.words["was cut"] = "yes"
	}
}

// shown is the least statement of side effects that the history bears out.
func (a *automaton) shown() string {
	started, open := 0, 0
	for key, word := range a.words {
		if strings.HasPrefix(key, "tool ") && reNoTool.MatchString(word) {
			started++
			if a.isOpen(key) {
				open++
			}
		}
	}
	switch {
	case started == 0:
		return "none"
	case open > 0 || a.words["was cut"] != "":
		return "possible"
	}
	return "known"
}

// judge returns what has to be written for k, or false.
func (a *automaton) judge(k token) ([]string, bool) {
	candidates := []token{k}
	isDelta := strings.HasSuffix(k.typ, ".delta")
	switch {
	case isDelta && k.text == "":
		// Nothing is written, but a stream has to be there.
		return nil, regexp.MustCompile(`^B[^T]*$`).MatchString(a.words["life"])
	case isDelta && len(k.text) > a.limit:
		candidates = nil
		piece := ""
		for _, r := range k.text {
			if len(piece)+len(string(r)) > a.limit {
				part := k
				part.text = piece
				candidates = append(candidates, part)
				piece = ""
			}
			piece += string(r)
		}
		k.text = piece
		candidates = append(candidates, k)
	case strings.HasPrefix(k.typ, "run.") && k.ns == "" && strings.HasPrefix(a.words["life"], "B"):
		candidates = append(a.closers(k.typ), k)
	}
	// All or nothing: judge on a copy.
	trial := &automaton{limit: a.limit, words: map[string]string{}, order: slices.Clone(a.order), gens: slices.Clone(a.gens)}
	for key, word := range a.words {
		trial.words[key] = word
	}
	var out []string
	for _, c := range candidates {
		if c.typ == "run.error" || c.typ == "run.cancelled" {
			rank := []string{"", "none", "known", "possible"}
			if shown := trial.shown(); slices.Index(rank, c.stated) < slices.Index(rank, shown) {
				c.stated = shown
			}
		}
		next, ok := trial.grow(c)
		if !ok {
			return nil, false
		}
		trial.take(c, next)
		out = append(out, c.String())
	}
	*a = *trial
	return out, true
}

// closers are the tokens that have to precede a terminal of this type.
func (a *automaton) closers(terminal string) (out []token) {
	switch terminal {
	case "run.finished", "run.interrupted", "run.error", "run.cancelled":
	default:
		return nil
	}
	for _, key := range a.under("", "text", "reasoning") {
		kind, id, _ := strings.Cut(key, " ")
		out = append(out, token{typ: kind + ".finished", ns: a.homeOf(key), id: id})
	}
	if terminal != "run.error" && terminal != "run.cancelled" {
		return out
	}
	for _, key := range a.under("", "tool") {
		out = append(out, token{typ: "tool.error", ns: a.homeOf(key), id: strings.TrimPrefix(key, "tool "), code: "run_ended"})
	}
	for _, path := range slices.Backward(a.openSpaces()) {
		i := strings.LastIndex("/"+path, "/")
		out = append(out, token{typ: "namespace.exited", ns: strings.TrimSuffix(path[:i], "/"), id: path[i:]})
	}
	return out
}

// inherit seeds the words with what another run left open.
func (a *automaton) inherit(tools map[string]string, order, spaces []string) {
	for _, path := range spaces {
		a.words["space "+path] = "e"
		a.words["entries"] += " " + path
	}
	for _, id := range order {
		a.words["tool "+id] = "s" + spaceDigits[tools[id]]
		a.order = append(a.order, "tool "+id)
	}
}

var _ fmt.Stringer = token{}
