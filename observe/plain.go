package observe

import (
	"strconv"
	"strings"
	"unicode"
)

// plain makes text that a rank has given fit for one line of a terminal. Characters that aren't printable are escaped,
// among them ends of lines and those that move a cursor or turn text around.
func plain(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hidden(r) {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }
