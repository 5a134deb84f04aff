/*
 * message.h - messages between the running kvway and the one that takes over: text of one packet.
 *
 * 	kvway-takeover 1 socket
 * 	use listen
 * 	address 0.0.0.0:8080
 * 	count 2
 *
 * The first line names the protocol, its version and the kind; each further line is a name, a space
 * and a value of printable ASCII. Names that are not known are skipped, so that a later version can
 * say more; one that changes what is said gets another number, and is refused by this one.
 *
 * Keys of session tickets go as text, too: a packet is in no file and gone when it was read, while
 * a memory file may be swapped to a disk. The owner of a message with keys wipes it.
 *
 * Plain data, no I/O. Threads: any.
 */
#ifndef KVW_TAKEOVER_MESSAGE_H
#define KVW_TAKEOVER_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "server/sockets.h"

#define KVW_TAKEOVER_BYTES 2048 /* of a packet; older versions get packets of 1024 at most */
#define KVW_TAKEOVER_KEYS  240  /* bytes of keys in a packet */
#define KVW_TAKEOVER_FDS   16   /* with a packet */

enum kvw_takeover_kind {
	KVW_TAKEOVER_HELLO,   /* new: give me your sockets; version, pid */
	/* old: they come; version, pid, count: workers that are usable, snapshot, tickets. */
	KVW_TAKEOVER_WELCOME,
	KVW_TAKEOVER_SOCKET,  /* old: use, address, and count descriptors */
	KVW_TAKEOVER_END,     /* old: that was all; count: descriptors in all packets together */
	/* New, if the old one can: write down what you know.
	 * Old: here it is, in one descriptor; without any: why not. */
	KVW_TAKEOVER_SNAPSHOT,
	/* New, if the old one can: which keys have your session tickets? Old: those of one use, and
	 * the seconds for which the newest has served as count; without keys: that was all. */
	KVW_TAKEOVER_TICKETS,
	KVW_TAKEOVER_READY,   /* new: I accept; caches */
	/* Old, before GOODBYE, where READY allows it: what workers have reported of their caches,
	 * in one descriptor. */
	KVW_TAKEOVER_CACHES,
	KVW_TAKEOVER_GOODBYE, /* old: then I do not any more */
	KVW_TAKEOVER_REFUSED, /* old, instead of any answer: why; this one serves on */
	KVW_TAKEOVER_KINDS
};

struct kvw_takeover_message {
	enum kvw_takeover_kind kind;
	enum kvw_socket_use use; /* KVW_SOCKET_USES: a word that this version does not know */
	uint32_t count;
	uint32_t snapshot, tickets; /* WELCOME: 1: may be asked for */
	uint32_t caches;            /* READY: 1: CACHES may come */
	int64_t pid;
	char version[32];
	char address[KVW_SOCKET_TEXT];
	char why[256];
	size_t keys_len;
	unsigned char keys[KVW_TAKEOVER_KEYS]; /* [keys_len] */
};

/* KVW_EPROTO: it is none; KVW_EINVAL: of another version of the protocol. */
enum kvw_err kvw_takeover_parse(
	const char *text, size_t len, struct kvw_takeover_message *out) KVW_MUST_CHECK;

/* Returns the length of the text. Characters that are not printable become '?'. */
size_t kvw_takeover_format(
	const struct kvw_takeover_message *message, char text[KVW_TAKEOVER_BYTES]);

/* "hello", "welcome", ... */
const char *kvw_takeover_kind_name(enum kvw_takeover_kind kind);

#endif
