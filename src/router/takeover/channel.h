/*
 * channel.h - packets of a takeover with descriptors, over a Unix socket of type SOCK_SEQPACKET.
 *
 * Such a socket keeps packets whole, so there is no half of a message to wait for.
 *
 * Threads: one.
 */
#ifndef KVW_TAKEOVER_CHANNEL_H
#define KVW_TAKEOVER_CHANNEL_H

#include <stdbool.h>

#include "takeover/message.h"

/* Sends without waiting. KVW_EAGAIN: the peer takes nothing; KVW_ECLOSED: it is gone. */
enum kvw_err kvw_takeover_send(int channel, const struct kvw_takeover_message *message,
	const int *fds, size_t fd_count) KVW_MUST_CHECK;

/*
 * Receives one packet without waiting. The fds are the caller's, closed on exec; *fd_count of them.
 * A packet that cannot be used leaves none open: KVW_EPROTO: it is no message; KVW_ELIMIT: it is
 * longer than one; KVW_EINVAL: of another version; KVW_ENOTFOUND: it does not bring the descriptors
 * that it names. KVW_EAGAIN: nothing has come; KVW_ECLOSED: the peer is gone.
 */
enum kvw_err kvw_takeover_receive(int channel, struct kvw_takeover_message *out,
	int fds[KVW_TAKEOVER_FDS], size_t *fd_count) KVW_MUST_CHECK;

/* Is the peer a process of our user? *pid is its id. */
bool kvw_takeover_peer(int channel, int64_t *pid) KVW_MUST_CHECK;

#endif
