package hosts

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/secure"
)

// sshAnswerTime is how long ssh may take to print its configuration.
const sshAnswerTime = 10 * time.Second

// command starts the launcher of a host: chorus itself on this one, and ssh for others. Several hosts would ask
// questions at once, so ssh asks none, and fails instead. It also ends when the host falls silent.
func (h *Job) command(to Host) []string {
	if to.Local() {
		return h.Self
	}
	// Two requests without an answer end ssh: altogether that's about LostAfter.
	every := max(1, int((h.LostAfter / 2).Seconds()))
	return append(append([]string{}, h.SSH...), "-T", "-o", "BatchMode=yes",
		"-o", "ServerAliveInterval="+strconv.Itoa(every), "-o", "ServerAliveCountMax=2",
		to.Name, shellQuoted(h.Remote)+" node")
}

// shellQuoted is a word for any shell that may be somebody's login shell.
func shellQuoted(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("/._-+:@%~", c)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// resolved is the name or address by which ssh reaches a host, after its aliases.
func (h *Job) resolved(to Host) string {
	_, name, hasUser := strings.Cut(to.Name, "@")
	if !hasUser {
		name = to.Name
	}
	ctx, cancel := context.WithTimeout(context.Background(), sshAnswerTime)
	defer cancel()
	args := append(append([]string{}, h.SSH[1:]...), "-G", to.Name)
	text, err := exec.CommandContext(ctx, h.SSH[0], args...).Output()
	if err != nil {
		return name // what stands in for ssh may not know -G
	}
	for line := range strings.Lines(string(text)) {
		if found, ok := strings.CutPrefix(strings.TrimSpace(line), "hostname "); ok {
			return found
		}
	}
	return name
}

// meeting is the host of the rendezvous, which the launcher of the first host serves, as the others know it.
func (h *Job) meeting() (string, error) {
	first := h.Hosts[0]
	if first.Local() && first.Name != "localhost" && !secure.Loopback(first.Name) {
		return first.Name, nil
	}
	far := "" // a host that isn't reached on the loopback
	for _, other := range h.Hosts[1:] {
		if !other.Local() {
			if at := h.resolved(other); !secure.Loopback(at) {
				far = at
				break
			}
		}
	}
	if !first.Local() {
		at := h.resolved(first)
		if secure.Loopback(at) && far != "" {
			return "", process.BadArgument("ssh reaches %s at %s, where other hosts can't: --rdzv-endpoint gives them an address",
				first.Name, at)
		}
		return at, nil
	}
	if far == "" {
		return "127.0.0.1", nil
	}
	return addressToward(far), nil
}

// addressToward is this host's address on the way to another, or else its name.
func addressToward(host string) string {
	if c, err := net.DialTimeout("udp", net.JoinHostPort(host, "9"), sshAnswerTime); err == nil { // sends nothing
		defer c.Close()
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok {
			return a.IP.String()
		}
	}
	own, err := os.Hostname()
	if err != nil {
		return "127.0.0.1"
	}
	return own
}

// advice is what to do about a launcher that could not be started, by what ssh or the shell has said and its exit
// status.
func advice(to Host, status int, words []string) string {
	text := strings.Join(words, "\n")
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case to.Local():
		return ""
	case has("REMOTE HOST IDENTIFICATION HAS CHANGED"):
		return fmt.Sprintf("the host's key is not the one that ssh knows. If the host was set up anew,"+
			" `ssh-keygen -R` removes the old key, and `ssh %s` shows the new one for you to check; if not, somebody else may be answering", to.Name)
	case has("Host key verification failed"):
		return fmt.Sprintf("ssh doesn't know the host's key: run `ssh %s` once, compare the fingerprint that it shows,"+
			" and accept it", to.Name)
	case has("Permission denied"):
		return fmt.Sprintf("ssh must log in without a question: add a key to the agent by `ssh-add`, and try"+
			" `ssh -o BatchMode=yes %s`", to.Name)
	case status == process.CodeNotFound:
		return "put chorus on the PATH that commands of ssh have there, or give --remote-chorus PATH"
	}
	return fmt.Sprintf("try `ssh -o BatchMode=yes %s`", to.Name)
}
