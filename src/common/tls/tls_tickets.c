/*
 * tls_tickets.c - makes, rotates and uses the keys of session tickets.
 *
 * A ticket holds a whole session, sealed by a key that all loops share, so that a client may resume
 * on any of them and no table grows. A key can decrypt recorded connections of TLS 1.2: so keys are
 * made in this process, never written to a disk, and replaced every hour. A ticket of an older key
 * is accepted and replaced by a new one. A renewal of certificates does not change the keys. The
 * process that takes over inherits them, and replaces them when this process would have.
 *
 * With TLS 1.3 each resumption brings a new ticket, since clients should use a ticket only once
 * (RFC 8446, C.4): else every second connection would need a full handshake.
 */
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tls/tls_internal.h"

#define PERIOD_NS  (3600 * KVW_NS_PER_S)
#define LIFETIME_S 7200

_Static_assert((KVW_TLS_TICKET_KEYS - 1) * PERIOD_NS >= LIFETIME_S * KVW_NS_PER_S,
	"a ticket's key lives as long as the ticket");
_Static_assert(KVW_TLS_TICKETS_MOST == KVW_TLS_TICKET_KEYS * sizeof(struct kvw_tls_ticket_key),
	"all keys are passed on");

static bool make_key(struct kvw_tls_ticket_key *key)
{
	return RAND_bytes(key->name, sizeof(key->name)) == 1 &&
	       RAND_priv_bytes(key->cipher, sizeof(key->cipher)) == 1 &&
	       RAND_priv_bytes(key->mac, sizeof(key->mac)) == 1;
}

bool kvw_tls_tickets_init(struct kvw_tls_tickets *tickets)
{
	tickets->keys = malloc(KVW_TLS_TICKETS_MOST);
	if (tickets->keys == NULL || !make_key(&tickets->keys[0]))
		return false;
	tickets->count = 1;
	return true;
}

void kvw_tls_tickets_finish(struct kvw_tls_tickets *tickets)
{
	if (tickets->keys != NULL)
		OPENSSL_cleanse(tickets->keys, KVW_TLS_TICKETS_MOST);
	free(tickets->keys);
	pthread_mutex_destroy(&tickets->lock);
}

void kvw_tls_rotate_tickets(struct kvw_tls *tls, int64_t now_ns)
{
	struct kvw_tls_tickets *tickets = &tls->tickets;
	struct kvw_tls_ticket_key key;

	if (!tls->server)
		return;
	if (tickets->rotated_ns == 0)
		tickets->rotated_ns = now_ns;
	if (now_ns - tickets->rotated_ns < PERIOD_NS || !make_key(&key))
		return;
	tickets->rotated_ns = now_ns;
	pthread_mutex_lock(&tickets->lock);
	memmove(&tickets->keys[1], &tickets->keys[0], sizeof(key) * (KVW_TLS_TICKET_KEYS - 1));
	tickets->keys[0] = key;
	if (tickets->count < KVW_TLS_TICKET_KEYS)
		tickets->count++;
	pthread_mutex_unlock(&tickets->lock);
	OPENSSL_cleanse(&key, sizeof(key));
}

bool kvw_tls_pass_tickets(struct kvw_tls *tls, int64_t now_ns, struct kvw_tls_passed *out)
{
	struct kvw_tls_tickets *tickets = &tls->tickets;

	if (!tls->server)
		return false;
	pthread_mutex_lock(&tickets->lock);
	out->len = tickets->count * sizeof(tickets->keys[0]);
	memcpy(out->keys, tickets->keys, out->len);
	pthread_mutex_unlock(&tickets->lock);
	out->age_s = tickets->rotated_ns == 0
			     ? 0
			     : (uint32_t)((now_ns - tickets->rotated_ns) / KVW_NS_PER_S);
	return true;
}

bool kvw_tls_inherit_tickets(
	struct kvw_tls *tls, int64_t now_ns, const struct kvw_tls_passed *passed)
{
	struct kvw_tls_tickets *tickets = &tls->tickets;
	int64_t age_ns = passed->age_s * KVW_NS_PER_S;

	if (!tls->server || passed->len == 0 || passed->len > KVW_TLS_TICKETS_MOST ||
		passed->len % sizeof(tickets->keys[0]) != 0)
		return false;
	pthread_mutex_lock(&tickets->lock);
	memcpy(tickets->keys, passed->keys, passed->len);
	tickets->count = passed->len / sizeof(tickets->keys[0]);
	pthread_mutex_unlock(&tickets->lock);
	tickets->rotated_ns = now_ns - (age_ns < PERIOD_NS ? age_ns : PERIOD_NS);
	return true;
}

/* Returns the index of the key with this name, or of the newest key if name is NULL; -1: there is
 * none. */
static int find_key(
	struct kvw_tls_tickets *tickets, const unsigned char *name, struct kvw_tls_ticket_key *out)
{
	int at = name == NULL ? 0 : -1;

	pthread_mutex_lock(&tickets->lock);
	for (size_t i = 0; at < 0 && i < tickets->count; i++)
		if (memcmp(tickets->keys[i].name, name, sizeof(tickets->keys[i].name)) == 0)
			at = (int)i;
	if (at >= 0)
		*out = tickets->keys[at];
	pthread_mutex_unlock(&tickets->lock);
	return at;
}

static bool set_mac(EVP_MAC_CTX *mac, struct kvw_tls_ticket_key *key)
{
	char digest[] = "SHA256";
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key->mac, sizeof(key->mac)),
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
		OSSL_PARAM_construct_end(),
	};

	return EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* Callback for SSL_CTX_set_tlsext_ticket_key_evp_cb(3), which defines its results: 0: the ticket
 * cannot be decrypted; 2: it is to be replaced by a new one. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
	EVP_MAC_CTX *mac, int seal)
{
	struct kvw_tls_conn *c = SSL_get_app_data(ssl);
	struct kvw_tls_ticket_key key;
	int at = find_key(&c->tls->tickets, seal ? NULL : name, &key);
	bool good;

	if (at < 0)
		return 0;
	if (seal) {
		memcpy(name, key.name, sizeof(key.name));
		good = RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) == 1 &&
		       EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, key.cipher, iv) == 1;
	} else {
		good = EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, key.cipher, iv) == 1;
	}
	good = good && set_mac(mac, &key);
	OPENSSL_cleanse(&key, sizeof(key));
	if (!good)
		return -1;
	return at > 0 || (!seal && SSL_version(ssl) == TLS1_3_VERSION) ? 2 : 1;
}

/* A resumption renews the ticket without verifying the client's certificate again, so the
 * certificate's expiry is checked here. */
static SSL_TICKET_RETURN on_opened(SSL *ssl, SSL_SESSION *session, const unsigned char *name,
	size_t name_len, SSL_TICKET_STATUS status, void *arg)
{
	const X509 *peer = session != NULL ? SSL_SESSION_get0_peer(session) : NULL;

	(void)ssl, (void)name, (void)name_len, (void)arg;
	if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW)
		return SSL_TICKET_RETURN_IGNORE_RENEW;
	if (peer != NULL && X509_cmp_current_time(X509_get0_notAfter(peer)) <= 0)
		return SSL_TICKET_RETURN_IGNORE_RENEW;
	return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

void kvw_tls_tickets_use(SSL_CTX *ctx)
{
	(void)SSL_CTX_set_session_ticket_cb(ctx, NULL, on_opened, NULL);
	(void)SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket);
	(void)SSL_CTX_set_timeout(ctx, LIFETIME_S);
}
