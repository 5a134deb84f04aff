/*
 * tls_flood.c - limits the messages without payload that a peer may send after the handshake.
 *
 * A peer may request renegotiation (TLS 1.2) or new keys (1.3) at any time, and a server may send
 * tickets. OpenSSL refuses or accepts any number of them, and does not return from a read before
 * the socket is empty: one peer could block a loop for as long as it sends. So OpenSSL's message
 * callback counts these messages, and beyond the bound the BIO reports a broken socket to OpenSSL
 * (tls_bio.c). OpenSSL still processes the bytes of one read: 16 KiB.
 */
#include <string.h>

#include "tls/tls_internal.h"

void kvw_tls_on_message(
	int ours, int version, int type, const void *data, size_t len, SSL *ssl, void *arg)
{
	static const unsigned char refusal[2] = {SSL3_AL_WARNING, SSL_AD_NO_RENEGOTIATION};
	struct kvw_tls_conn *c = SSL_get_app_data(ssl);
	bool counts = ours ? type == SSL3_RT_ALERT && len == sizeof(refusal) &&
				      memcmp(data, refusal, len) == 0
			   : type == SSL3_RT_HANDSHAKE;

	(void)version, (void)arg;
	if (!counts || !c->ready || c->flooded || ++c->messages <= KVW_TLS_MESSAGES)
		return;
	c->flooded = true;
	atomic_fetch_add_explicit(&c->tls->floods, 1, memory_order_relaxed);
}

void kvw_tls_count_payload(struct kvw_tls_conn *c, size_t n)
{
	c->payload += n;
	if (c->payload < KVW_TLS_MESSAGES_PER)
		return;
	c->payload = 0;
	c->messages = 0;
}
