/*
 * peer.h - detects that the other end of a TCP connection has vanished.
 *
 * A peer that loses power or network sends no FIN. Without data in flight the kernel's keepalive
 * probes detect that; with data in flight no probes are sent, and unanswered retransmissions must
 * end the connection. TCP_USER_TIMEOUT does that, but also ends the connection to a living peer
 * that keeps its window closed; where a closed window is allowed for longer, kvw_peer_vanished
 * checks instead.
 *
 * Threads: any; a descriptor is its owner's.
 */
#ifndef KVW_PEER_H
#define KVW_PEER_H

#include <stdbool.h>
#include <stdint.h>

/* Sets keepalive so that the connection ends when nothing came from the peer for gone_ms, rounded
 * to seconds and at least two; 0: the system's settings. Accepted connections inherit the setting
 * of their listening socket. user_timeout: the connection also ends when the peer has taken no data
 * for gone_ms. On failure the system's settings stay. */
void kvw_peer_watch(int fd, int64_t gone_ms, bool user_timeout);

/* Returns whether nothing came from the peer for gone_ms, in spite of the kernel's probes; false if
 * gone_ms is 0. */
bool kvw_peer_vanished(int fd, int64_t gone_ms);

#endif
