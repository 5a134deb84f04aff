/*
 * proxy_protocol_test.c - headers of the PROXY protocol: what is read, what more is waited for, what is refused.
 */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "wire/proxy_protocol.h"
#include "tests/unit/suite.h"

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"

static char text[KVW_PROXY_HEADER_MOST + 64];
static size_t text_len;

static void begin(const char *data, size_t len)
{
	memcpy(text, data, len);
	text_len = len;
}

static void add(const char *data, size_t len)
{
	memcpy(text + text_len, data, len);
	text_len += len;
}

/* A header of version 2 around what follows its fixed part. */
static void version2(uint8_t command, uint8_t family, const char *rest, size_t len)
{
	const char fixed[] = {(char)(0x20 | command), (char)family, (char)(len >> 8), (char)len};

	begin(SIGNATURE, 12);
	add(fixed, 4);
	add(rest, len);
}

static enum kvw_proxy_verdict look(struct kvw_proxy_header *out)
{
	const char *why = NULL;
	enum kvw_proxy_verdict verdict = kvw_proxy_header_read(text, text_len, out, &why);

	ck_assert((verdict == KVW_PROXY_BAD) == (why != NULL));
	return verdict;
}

/* The address and port of a whole header, "": it says nothing of a client. */
static const char *client_of(void)
{
	static char shown[80];
	struct kvw_proxy_header header;
	char address[64] = "";
	const void *raw;
	bool v4;

	ck_assert_int_eq(look(&header), KVW_PROXY_WHOLE);
	if (!header.known)
		return "";
	v4 = header.client.ss_family == AF_INET;
	raw = v4 ? (const void *)&((struct sockaddr_in *)&header.client)->sin_addr
		 : (const void *)&((struct sockaddr_in6 *)&header.client)->sin6_addr;
	ck_assert_ptr_nonnull(inet_ntop(header.client.ss_family, raw, address, sizeof(address)));
	snprintf(shown, sizeof(shown), "%s %u", address,
		ntohs(v4 ? ((struct sockaddr_in *)&header.client)->sin_port
			 : ((struct sockaddr_in6 *)&header.client)->sin6_port));
	return shown;
}

static const char *line(const char *words)
{
	begin(words, strlen(words));
	return client_of();
}

START_TEST(version_1)
{
	struct kvw_proxy_header header;

	ck_assert_str_eq(line("PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\nGET /"), "192.0.2.7 56324");
	ck_assert_int_eq(look(&header), KVW_PROXY_WHOLE);
	ck_assert_uint_eq(header.len, strlen("PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n"));
	ck_assert_str_eq(line("PROXY TCP6 2001:db8::7 ::1 0 65535\r\n"), "2001:db8::7 0");
	ck_assert_str_eq(line("PROXY UNKNOWN\r\n"), "");
	ck_assert_str_eq(line("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"), "");
}
END_TEST

START_TEST(version_1_refused)
{
	static const char *const bad[] = {"PROXY \r\n", "PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", "PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n", "PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 65536 2\r\n", "PROXY TCP4 1.1.1.1 2.2.2.2 -1 2\r\n",
		"PROXY TCP4 1.1.1 2.2.2.2 1 2\r\n", "PROXY TCP4 ::1 ::2 1 2\r\n", "PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n", "PROXY tcp4 1.1.1.1 2.2.2.2 1 2\r\n",
		"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n", "PROXY TCP4\t1.1.1.1 2.2.2.2 1 2\r\n"};
	struct kvw_proxy_header header;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin(bad[i], strlen(bad[i]));
		ck_assert_msg(look(&header) == KVW_PROXY_BAD, "%s", bad[i]);
	}
	begin("PROXY TCP4 1.1.1.1\0 2.2.2.2 1 2\r\n", 33);
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	begin("PROXY UNKNOWN ", 14); /* a line that does not end */
	for (size_t i = 14; i < 107; i++) {
		ck_assert_int_eq(look(&header), KVW_PROXY_MORE);
		add("x", 1);
	}
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
}
END_TEST

START_TEST(version_2)
{
	char v4[] = "\xC0\x00\x02\x07\x0A\x00\x00\x01\xDC\x04\x01\xBB";
	char v6[36] = {0x20, 0x01, 0x0d, (char)0xb8, [15] = 9, [32] = 1, [33] = 2};
	char local[216] = {0};

	version2(1, 0x11, v4, 12);
	ck_assert_str_eq(client_of(), "192.0.2.7 56324");
	add("GET / HTTP/1.1", 14);
	ck_assert_str_eq(client_of(), "192.0.2.7 56324");
	version2(1, 0x21, v6, 36);
	ck_assert_str_eq(client_of(), "2001:db8::9 258");
	version2(0, 0x11, v4, 12); /* LOCAL: the addresses say nothing */
	ck_assert_str_eq(client_of(), "");
	version2(0, 0x11, "", 0); /* nor need they be there, */
	ck_assert_str_eq(client_of(), "");
	version2(0, 0x43, "any bytes", 9); /* nor be of a family that there is */
	ck_assert_str_eq(client_of(), "");
	version2(0, 0x00, "", 0);
	ck_assert_str_eq(client_of(), "");
	version2(1, 0x00, "any bytes", 9);
	ck_assert_str_eq(client_of(), "");
	version2(1, 0x31, local, 216); /* UNIX */
	ck_assert_str_eq(client_of(), "");
	version2(1, 0x12, v4, 12); /* UDP */
	ck_assert_str_eq(client_of(), "");
}
END_TEST

START_TEST(version_2_refused)
{
	char v4[64] = "\xC0\x00\x02\x07\x0A\x00\x00\x01\xDC\x04\x01\xBB";
	struct kvw_proxy_header header;

	version2(2, 0x11, v4, 12); /* another command */
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	version2(1, 0x11, v4, 11);
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	version2(1, 0x41, v4, 12);
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	version2(1, 0x13, v4, 12);
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	version2(1, 0x10, v4, 12);
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	version2(1, 0x11, v4, 12);
	text[12] = 0x11; /* another version */
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	version2(1, 0x11, v4, 12);
	text[14] = 0x10; /* 4,108 bytes */
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	memcpy(v4 + 12, "\x02\x00\x05host", 7); /* a field that is longer than the header */
	version2(1, 0x11, v4, 19);
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	version2(1, 0x11, v4, 14);
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	v4[14] = 4;
	version2(1, 0x11, v4, 19);
	ck_assert_str_eq(client_of(), "192.0.2.7 56324");
}
END_TEST

/* Type 3: of the whole header, with zeroes in its place. */
START_TEST(checksum)
{
	char rest[64] = "\xC0\x00\x02\x07\x0A\x00\x00\x01\xDC\x04\x01\xBB\x04\x00\x02xy\x03\x00\x04\0\0\0\0";
	struct kvw_proxy_header header;
	uint32_t sum;

	ck_assert_uint_eq(kvw_proxy_crc32c("123456789", 9), UINT32_C(0xE3069283)); /* RFC 3720 */
	version2(1, 0x11, rest, 24);
	ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
	sum = htonl(kvw_proxy_crc32c(text, text_len));
	memcpy(text + 16 + 20, &sum, 4);
	ck_assert_str_eq(client_of(), "192.0.2.7 56324");
	add("what follows does not count", 27);
	ck_assert_str_eq(client_of(), "192.0.2.7 56324");
	for (size_t i = 16; i < 40; i++) {
		if (i == 33)
			continue; /* its type: then it is another field, and there is no checksum */
		text[i] ^= 1;
		ck_assert_int_eq(look(&header), KVW_PROXY_BAD);
		text[i] ^= 1;
	}
}
END_TEST

START_TEST(cut_at_every_byte)
{
	static const char v1[] = "PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n";
	struct kvw_proxy_header header;
	size_t whole;

	version2(1, 0x11, "\xC0\x00\x02\x07\x0A\x00\x00\x01\xDC\x04\x01\xBB", 12);
	whole = text_len;
	for (text_len = 0; text_len < whole; text_len++)
		ck_assert_int_eq(look(&header), KVW_PROXY_MORE);
	begin(v1, sizeof(v1) - 1);
	for (text_len = 0; text_len < sizeof(v1) - 1; text_len++)
		ck_assert_int_eq(look(&header), KVW_PROXY_MORE);
}
END_TEST

START_TEST(other_bytes)
{
	static const char *const others[] = {"GET / HTTP/1.1\r\n", "PRO/", "PROXX", "PROXYING", "proxy TCP4",
		"\x16\x03\x01", "\r\n\r\nGET", "\r\n\r\n\r\n"};
	struct kvw_proxy_header header;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		begin(others[i], strlen(others[i]));
		ck_assert_msg(look(&header) == KVW_PROXY_NONE, "%s", others[i]);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, version_1);
	tcase_add_test(tcase, version_1_refused);
	tcase_add_test(tcase, version_2);
	tcase_add_test(tcase, version_2_refused);
	tcase_add_test(tcase, checksum);
	tcase_add_test(tcase, cut_at_every_byte);
	tcase_add_test(tcase, other_bytes);
	return run_tcase("proxy_protocol", tcase);
}
