// Package members is what a rank knows of the other members of its communicator when operations don't end as they
// should: which are lost or have failed, which are late, and which run another operation. It makes the typed errors of
// failed collectives, tells the other members of a failure, and has the messages by which ranks ask each other.
//
// A backend embeds a [Group] in its part of a communicator, and a [World] in what communicators share. It says what its
// own operation under way is by [Own]. It passes on what the fabric reports, by [Group.Notice], [Group.Lost] and
// [Group.Disagree], and asks for the error of an operation by [Group.Explain], of a link by [Group.LoseLink], and of a
// stalled one by [Group.Stalled].
package members
