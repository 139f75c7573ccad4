package transport

import (
	"mime"
	"net/http"
	"strings"
)

// Media types of answers. GraphQL over HTTP (section 6) has one answer in two forms, which differ in their status codes.
const (
	mediaJSON    = "application/json"
	mediaGraphQL = "application/graphql-response+json"
	mediaStream  = "text/event-stream"
	mediaProblem = "application/problem+json"
)

// maxRanges is how many media ranges of Accept are looked at.
const maxRanges = 64

// accepted is what a client takes, by its Accept header (RFC 9110, section 12.5.1).
type accepted struct {
	single string // form of a single answer; empty where none is taken
	stream bool   // takes an event stream, and says so: */* does not
	before bool   // would rather have that than the single answer
}

// any reports whether there is an answer that the client takes.
func (a accepted) any() bool { return a.single != "" || a.stream }

// acceptsStream reports whether a client takes an event stream from where there is nothing else.
func acceptsStream(h http.Header) bool {
	header := strings.Join(h.Values("Accept"), ",")
	return strings.Trim(header, " \t,") == "" || preferenceFor(rangesOf(header), mediaStream).quality > 0
}

// preference is how much a client wants a media type.
type preference struct {
	quality int // in thousandths; 0: not taken
	exact   int // how exactly it was named: 2 by its name, 1 by its kind, 0 by */*
	place   int // of the range among the others
}

// over reports whether p comes before q: the higher quality, then the more exact name, then the earlier.
func (p preference) over(q preference) bool {
	switch {
	case p.quality != q.quality:
		return p.quality > q.quality
	case p.exact != q.exact:
		return p.exact > q.exact
	}
	return p.place < q.place
}

// acceptedBy reads the Accept header; one that is absent or empty takes application/json. Ranges that are malformed count
// for nothing.
func acceptedBy(h http.Header) accepted {
	header := strings.Join(h.Values("Accept"), ",")
	if strings.Trim(header, " \t,") == "" {
		return accepted{single: mediaJSON}
	}
	ranges := rangesOf(header)
	plain, graphQL, stream := preferenceFor(ranges, mediaJSON), preferenceFor(ranges, mediaGraphQL), preferenceFor(ranges, mediaStream)
	var a accepted
	single := plain
	switch {
	case graphQL.quality > 0 && graphQL.over(plain):
		a.single, single = mediaGraphQL, graphQL
	case plain.quality > 0:
		a.single = mediaJSON
	}
	a.stream = stream.quality > 0 && stream.exact > 0
	a.before = a.stream && (a.single == "" || stream.over(single))
	return a
}

// mediaRange is one of Accept, in lower case.
type mediaRange struct {
	name    string // type/subtype
	quality int    // in thousandths
}

func rangesOf(header string) []mediaRange {
	var ranges []mediaRange
	for part := range strings.SplitSeq(header, ",") {
		if len(ranges) == maxRanges {
			break
		}
		// mime refuses what is not type/subtype with well-formed parameters; a comma in a quoted one splits it, and both
		// halves are refused.
		name, params, err := mime.ParseMediaType(part)
		if err != nil || !strings.Contains(name, "/") {
			continue
		}
		r := mediaRange{name: name, quality: 1000}
		matches := true
		for param, value := range params {
			switch param {
			case "q":
				quality, ok := parseQuality(value)
				if !ok {
					matches = false
				}
				r.quality = quality
			case "charset":
				matches = matches && isUTF8(value)
			default:
				matches = false // none of our types has another parameter
			}
		}
		if matches {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// parseQuality reads a qvalue: 0 to 1 with at most three decimals.
func parseQuality(s string) (thousandths int, ok bool) {
	whole, decimals, point := strings.Cut(s, ".")
	if len(whole) != 1 || (whole != "0" && whole != "1") || len(decimals) > 3 || (point && len(s) == 0) {
		return 0, false
	}
	n := int(whole[0]-'0') * 1000
	for i, unit := 0, 100; i < len(decimals); i, unit = i+1, unit/10 {
		if decimals[i] < '0' || decimals[i] > '9' {
			return 0, false
		}
		n += int(decimals[i]-'0') * unit
	}
	return n, n <= 1000
}

// preferenceFor finds the range that is about the media type: the most exact one, of equals the first.
func preferenceFor(ranges []mediaRange, name string) preference {
	kind, _, _ := strings.Cut(name, "/")
	best := preference{exact: -1}
	for i, r := range ranges {
		exact := -1
		switch r.name {
		case name:
			exact = 2
		case kind + "/*":
			exact = 1
		case "*/*":
			exact = 0
		}
		if exact > best.exact {
			best = preference{quality: r.quality, exact: exact, place: i}
		}
	}
	return best
}

func isUTF8(charset string) bool {
	return strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8")
}
