package user

import (
	"fmt"
	"slices"
	"strings"
)

// token is a word of a user's text: an identifier, a number, a string, a mark, or white space with comments.
type token struct {
	kind byte // i, n, s, p or a space
	text string
}

func isLetter(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// tokensOf divides a text. Joined, the tokens are the text, without comments, which have a space or their ends of
// lines in their place.
func tokensOf(text string) (list []token) {
	for i := 0; i < len(text); {
		from, c := i, text[i]
		rest := text[i:]
		switch {
		case strings.HasPrefix(rest, "//"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			i += end
			list = append(list, token{' ', " "})
			continue
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/") + 4 // behind it: the comment's begin isn't its end
			if end < 4 {
				end = len(rest)
			}
			i += end
			list = append(list, token{' ', " " + strings.Repeat("\n", strings.Count(rest[:end], "\n"))})
			continue
		case isLetter(c):
			for i < len(text) && (isLetter(text[i]) || isDigit(text[i])) {
				i++
			}
			list = append(list, token{'i', text[from:i]})
		case isDigit(c) || c == '.' && i+1 < len(text) && isDigit(text[i+1]):
			for i < len(text) && (isLetter(text[i]) || isDigit(text[i]) || text[i] == '.' ||
				(text[i] == '+' || text[i] == '-') && strings.IndexByte("eEpP", text[i-1]) >= 0 &&
					(text[i-1]|32 == 'p' || !isHex(text[from:i]))) {
				i++
			}
			list = append(list, token{'n', text[from:i]})
		case c == '"' || c == '\'':
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i = min(i+1, len(text))
			list = append(list, token{'s', text[from:i]})
		case strings.IndexByte(" \t\r\n\f\v", c) >= 0:
			for i < len(text) && strings.IndexByte(" \t\r\n\f\v", text[i]) >= 0 {
				i++
			}
			list = append(list, token{' ', text[from:i]})
		default:
			i++
			for _, mark := range marks {
				if strings.HasPrefix(rest, mark) {
					i = from + len(mark)
					break
				}
			}
			list = append(list, token{'p', text[from:i]})
		}
	}
	return list
}

// marks have more than one character. Shifts have none: `>>` may end two lists of types.
var marks = []string{"::", "->", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "==", "!=", "<=", ">=",
	"&&", "||"}

func isHex(number string) bool { return strings.HasPrefix(strings.ToLower(number), "0x") }

// userParser reads functions.
type userParser struct {
	tokens []token
	at     int
}

// skip goes to the next token that isn't space.
func (p *userParser) skip() {
	for p.at < len(p.tokens) && p.tokens[p.at].kind == ' ' {
		p.at++
	}
}

// next is the token, which is taken; empty at the end.
func (p *userParser) next() token {
	p.skip()
	if p.at == len(p.tokens) {
		return token{}
	}
	p.at++
	return p.tokens[p.at-1]
}

// peek is the token.
func (p *userParser) peek() token {
	p.skip()
	if p.at == len(p.tokens) {
		return token{}
	}
	return p.tokens[p.at]
}

// enclosed takes the tokens up to the mark that closes one that was taken.
func (p *userParser) enclosed(open, closing string) (inside []token, ok bool) {
	from := p.at
	for depth := 1; p.at < len(p.tokens); p.at++ {
		switch p.tokens[p.at].text {
		case open:
			depth++
		case closing:
			if depth--; depth == 0 {
				p.at++
				return p.tokens[from : p.at-1], true
			}
		}
	}
	return nil, false
}

// userQualifiers are words before a function's type that say nothing here.
var userQualifiers = []string{"static", "inline", "constexpr", "const", "__device__", "__host__", "__forceinline__",
	"__inline__"}

func (p *userParser) function(text string) (*function, error) {
	form := func() error {
		return fmt.Errorf("it must have the form `template <typename T> T name(T x, T y) { return ...; }`, and begins "+
			"with %.60q", text)
	}
	f := &function{}
	if p.peek().text == "template" {
		p.next()
		if p.next().text != "<" {
			return nil, form()
		}
		types, ok := p.enclosed("<", ">")
		words := strings.Fields(joined(types))
		if !ok || len(words) != 2 || words[0] != "typename" && words[0] != "class" || !isLetter(words[1][0]) {
			return nil, fmt.Errorf("a template has one type, `template <typename T>`, not <%s>", joined(types))
		}
		f.typ = words[1]
	}
	var head []string
	for p.peek().kind == 'i' {
		if word := p.next().text; !slices.Contains(userQualifiers, word) {
			head = append(head, word)
		}
	}
	if len(head) < 2 || p.next().text != "(" {
		return nil, form()
	}
	f.result, f.name = strings.Join(head[:len(head)-1], " "), head[len(head)-1]
	if f.result != "void" && f.result != f.typ && userTypes[f.result] == "" {
		return nil, fmt.Errorf("%s returns %s, which is neither its type nor void", f.name, f.result)
	}
	params, ok := p.enclosed("(", ")")
	if !ok || p.next().text != "{" {
		return nil, form()
	}
	for _, text := range strings.Split(joined(params), ",") {
		q, err := f.param(text)
		if err != nil {
			return nil, err
		}
		f.params = append(f.params, q)
	}
	if f.body, ok = p.enclosed("{", "}"); !ok {
		return nil, fmt.Errorf("the braces of %s don't match", f.name)
	}
	return f, nil
}

// param reads a parameter: a type and a name, by value, or by reference if it's written to.
func (f *function) param(text string) (param, error) {
	words := strings.Fields(strings.ReplaceAll(text, "&", " & "))
	n := len(words)
	constant := slices.Contains(words, "const")
	words = slices.DeleteFunc(words, func(w string) bool { return w == "const" })
	ref := slices.Contains(words, "&")
	words = slices.DeleteFunc(words, func(w string) bool { return w == "&" })
	if n == 0 || len(words) < 2 || !isLetter(words[len(words)-1][0]) {
		return param{}, fmt.Errorf("parameter %q of %s isn't of the form `T name` or `T& name`",
			strings.TrimSpace(text), f.name)
	}
	p := param{typ: strings.Join(words[:len(words)-1], " "), name: words[len(words)-1], ref: ref && !constant}
	if p.typ != f.typ && userTypes[p.typ] == "" {
		return param{}, fmt.Errorf("parameter %q of %s is of an unknown type", strings.TrimSpace(text), f.name)
	}
	return p, nil
}

func joined(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(t.text)
	}
	return b.String()
}
