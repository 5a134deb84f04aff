/*
 * dns_srv.c - reads a DNS message with SRV records.
 *
 * RFC 1035, 4.1: twelve bytes of header, the questions, then records: name, type, class (2 bytes
 * each), TTL (4), length (2), data. Data of SRV: priority, weight, port (2 each), target. Names may
 * point back into the message; ares_expand_name follows them within its bounds.
 */
#include "fleet/dns_srv.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CARES_NO_DEPRECATED
#include <ares.h>

#define HEADER     12
#define RECORD     10 /* bytes after a record's name, without its data */
#define CLASS_IN   1
#define TYPE_CNAME 5
#define TYPE_SRV   33

static unsigned get16(const unsigned char *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

static uint32_t get32(const unsigned char *at)
{
	return (uint32_t)get16(at) << 16 | get16(at + 2);
}

/* The part of the message that is not read yet. */
struct rest {
	const unsigned char *message;
	size_t len, at;
};

/* Skips a name; if out is not NULL, writes its text, or "" if it does not fit. */
static enum kvw_err read_name(struct rest *rest, char out[KVW_DNS_HOST])
{
	char *text = NULL;
	long used = 0;
	int status;

	if (rest->at >= rest->len)
		return KVW_EPROTO;
	status = ares_expand_name(
		rest->message + rest->at, rest->message, (int)rest->len, &text, &used);
	if (status != ARES_SUCCESS)
		return status == ARES_ENOMEM ? KVW_ENOMEM : KVW_EPROTO;
	if (out != NULL) {
		out[0] = '\0';
		if (strlen(text) < KVW_DNS_HOST)
			strcpy(out, text);
	}
	ares_free_string(text);
	rest->at += (size_t)used;
	return KVW_OK;
}

static int compare_targets(const void *a, const void *b)
{
	const struct kvw_dns_target *x = a, *y = b;
	int order = strcasecmp(x->host, y->host);

	return order != 0 ? order : x->port - y->port;
}

/* Reads one record: its TTL, and if it is an SRV record its target. */
static enum kvw_err read_record(
	struct rest *rest, struct kvw_dns_target *target, bool *is_target, uint32_t *ttl_s)
{
	enum kvw_err err = read_name(rest, NULL);
	const unsigned char *record;
	struct rest data = *rest;
	unsigned type;
	uint32_t ttl;

	*is_target = false;
	if (err != KVW_OK)
		return err;
	if (rest->len - rest->at < RECORD)
		return KVW_EPROTO;
	record = rest->message + rest->at;
	rest->at += RECORD;
	data.at = rest->at;
	if (rest->len - rest->at < get16(record + 8))
		return KVW_EPROTO;
	rest->at += get16(record + 8);
	type = get16(record);
	if (get16(record + 2) != CLASS_IN || (type != TYPE_SRV && type != TYPE_CNAME))
		return KVW_OK;
	ttl = get32(record + 4);
	if (ttl > INT32_MAX) /* RFC 2181, 8 */
		ttl = 0;
	if (ttl < *ttl_s)
		*ttl_s = ttl;
	if (type == TYPE_CNAME)
		return KVW_OK;
	if (get16(record + 8) < 7)
		return KVW_EPROTO;
	target->port = (uint16_t)get16(rest->message + data.at + 4);
	data.at += 6;
	*is_target = true;
	return read_name(&data, target->host);
}

enum kvw_err kvw_dns_srv_read(const unsigned char *message, size_t len,
	struct kvw_dns_target **targets, size_t *count, uint32_t *ttl_s)
{
	struct rest rest = {.message = message, .len = len, .at = HEADER};
	struct kvw_dns_target *found = NULL;
	size_t questions, records, met = 0, kept = 0;
	uint32_t ttl = KVW_DNS_STAY;
	enum kvw_err err = KVW_OK;
	bool is_target;

	if (len < HEADER || len > 65535)
		return KVW_EPROTO;
	questions = get16(message + 4);
	records = get16(message + 6);
	for (size_t i = 0; i < questions && err == KVW_OK; i++) {
		err = read_name(&rest, NULL);
		if (err == KVW_OK && rest.len - rest.at < 4)
			err = KVW_EPROTO;
		rest.at += 4;
	}
	if (err == KVW_OK) {
		found = calloc(KVW_DNS_MOST, sizeof(*found));
		if (found == NULL)
			return KVW_ENOMEM;
	}
	for (size_t i = 0; i < records && met < KVW_DNS_MOST && err == KVW_OK; i++) {
		err = read_record(&rest, &found[met], &is_target, &ttl);
		if (err == KVW_OK && is_target && found[met].host[0] != '\0' &&
			found[met].port != 0)
			met++;
	}
	if (err == KVW_OK && met == 0)
		err = KVW_ENOTFOUND;
	if (err != KVW_OK) {
		free(found);
		return err;
	}
	qsort(found, met, sizeof(*found), compare_targets);
	for (size_t i = 1; i < met; i++)
		if (compare_targets(&found[kept], &found[i]) != 0)
			found[++kept] = found[i];
	*targets = found;
	*count = kept + 1;
	*ttl_s = ttl;
	return KVW_OK;
}
