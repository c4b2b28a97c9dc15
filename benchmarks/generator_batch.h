/* Kafka's bytes: integers, varints and strings in and out, CRC32C, and the one record batch that the generator sends.
 *
 * Only 40 bytes of what a batch's CRC covers change from batch to batch, and CRCs are linear: the CRC of the constant
 * records is computed once, that of the changing head per batch, and a table built once moves the one past the length of
 * the other. So a 1 MB batch costs no more than a small one.
 */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH_HEADER = 61, CRC_AT = 17, CRC_FROM = 21 };

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static void *allocate(size_t size)
{
    void *memory = calloc(1, size);
    if (!memory)
        die("out of memory");
    return memory;
}

/* ---- bytes ---- */

static uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return ntohl(v); }
static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }
static uint8_t *put8(uint8_t *p, int v) { *p = (uint8_t)v; return p + 1; }
static uint8_t *put16(uint8_t *p, int v) { p[0] = (uint8_t)(v >> 8); p[1] = (uint8_t)v; return p + 2; }
static uint8_t *put32(uint8_t *p, uint32_t v) { v = htonl(v); memcpy(p, &v, 4); return p + 4; }
static uint8_t *put64(uint8_t *p, uint64_t v) { return put32(put32(p, (uint32_t)(v >> 32)), (uint32_t)v); }

static uint8_t *put_unsigned(uint8_t *p, uint64_t v)
{
    for (; v > 127; v >>= 7)
        *p++ = (uint8_t)(v | 128);
    return put8(p, (int)v);
}

static uint8_t *put_signed(uint8_t *p, int64_t v) { return put_unsigned(p, (uint64_t)v << 1 ^ (uint64_t)(v >> 63)); }

static uint8_t *put_string(uint8_t *p, const char *text)
{
    size_t n = strlen(text);
    p = put_unsigned(p, n + 1);
    memcpy(p, text, n);
    return p + n;
}

/* What reads an answer: running past its end sets `bad` instead of touching foreign memory. */
struct reader { const uint8_t *at, *end; int bad; };

static const uint8_t *take(struct reader *r, size_t n)
{
    static const uint8_t zeros[16];
    if ((size_t)(r->end - r->at) < n) {
        r->bad = 1;
        return zeros;
    }
    r->at += n;
    return r->at - n;
}

static uint64_t take_unsigned(struct reader *r)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        uint8_t b = *take(r, 1);
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128)
            return v;
    }
    r->bad = 1;
    return 0;
}

static void skip(struct reader *r, uint64_t n)
{
    if ((uint64_t)(r->end - r->at) < n)
        r->bad = 1;
    else
        r->at += n;
}

static void skip_string(struct reader *r)
{
    uint64_t n = take_unsigned(r);
    skip(r, n ? n - 1 : 0);
}

/* ---- CRC32C ---- */

static uint32_t crc_table[256];

static uint32_t crc_by_table(uint32_t crc, const uint8_t *p, size_t n)
{
    while (n--)
        crc = crc >> 8 ^ crc_table[(crc ^ *p++) & 255];
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
    uint64_t wide = crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    for (crc = (uint32_t)wide; n; n--)
        crc = _mm_crc32_u8(crc, *p++);
    return crc;
}
#else
#define crc_by_instruction crc_by_table
#endif

static uint32_t (*crc_update)(uint32_t, const uint8_t *, size_t) = crc_by_table;

static uint32_t crc32c(const uint8_t *p, size_t n) { return ~crc_update(~0u, p, n); }

static void crc_setup(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
        crc_table[i] = c;
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        crc_update = crc_by_instruction;
#endif
}

/* "Append n zero bytes" is a linear map of the 32 CRC bits: a 32 x 32 matrix, squared and multiplied up to n, then
 * spread into one table of 256 per CRC byte. */
static uint32_t times(const uint32_t *matrix, uint32_t vector)
{
    uint32_t sum = 0;
    for (; vector; vector >>= 1, matrix++)
        if (vector & 1)
            sum ^= *matrix;
    return sum;
}

static void multiply(uint32_t *left, const uint32_t *right) /* left = left * right */
{
    uint32_t product[32];
    for (int i = 0; i < 32; i++)
        product[i] = times(left, right[i]);
    memcpy(left, product, sizeof product);
}

static void shift_table(uint32_t table[4][256], size_t bytes)
{
    uint32_t power[32], result[32];
    for (int i = 0; i < 32; i++) {
        result[i] = 1u << i;
        power[i] = i < 8 ? crc_table[1u << i] : 1u << (i - 8); /* one zero byte */
    }
    for (; bytes; bytes >>= 1) {
        if (bytes & 1)
            multiply(result, power);
        uint32_t same[32];
        memcpy(same, power, sizeof same);
        multiply(power, same);
    }
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++)
            table[byte][value] = times(result, value << (8 * byte));
}

/* ---- the batch every connection sends ---- */

static uint8_t *records;
static size_t records_size;
static uint32_t record_count, records_crc, past_records[4][256];
static uint64_t timestamp;

static uint8_t *put_record(uint8_t *p, int index, long value_size)
{
    static uint64_t seed = 88172645463325252u;
    uint8_t body[32], *q = body;
    q = put8(q, 0);                /* attributes */
    q = put_signed(q, 0);          /* timestamp delta */
    q = put_signed(q, index);      /* offset delta */
    q = put_signed(q, -1);         /* no key */
    q = put_signed(q, value_size);
    p = put_signed(p, q - body + value_size + 1);
    memcpy(p, body, (size_t)(q - body));
    p += q - body;
    for (long i = 0; i < value_size; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        *p++ = (uint8_t)('a' + seed % 26);
    }
    return put_signed(p, 0); /* no headers */
}

/* As many records as fit into `whole` bytes of batch, the last one cut to fit; at least one. */
static void make_records(long whole, long record_bytes)
{
    const long overhead = 24; /* no record's framing is longer */
    long room = whole - BATCH_HEADER;
    records = allocate((size_t)(room > 0 ? room : 0) + (size_t)record_bytes + 64);
    uint8_t *p = records;
    do {
        long left = room - (p - records) - overhead, size = record_bytes;
        if (record_count && left < size)
            size = left;
        p = put_record(p, (int)record_count++, size);
    } while (room - (p - records) > overhead);
    records_size = (size_t)(p - records);
    records_crc = crc32c(records, records_size);
    shift_table(past_records, records_size);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    timestamp = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static size_t batch_size(void) { return BATCH_HEADER + records_size; }

static void put_batch_header(uint8_t *p, uint64_t producer, int epoch, uint32_t sequence)
{
    uint8_t *start = p;
    p = put64(p, 0);                              /* base offset: the broker's to set */
    p = put32(p, (uint32_t)(batch_size() - 12));
    p = put32(p, (uint32_t)-1);                   /* leader epoch: the broker's to set */
    p = put8(p, 2);                               /* magic */
    p = put32(p, 0);                              /* CRC, below */
    p = put16(p, 0);
    p = put32(p, record_count - 1);
    p = put64(p, timestamp);
    p = put64(p, timestamp);
    p = put64(p, producer);
    p = put16(p, epoch);
    p = put32(p, sequence);
    put32(p, record_count);
    uint32_t c = crc32c(start + CRC_FROM, BATCH_HEADER - CRC_FROM);
    c = past_records[0][c & 255] ^ past_records[1][c >> 8 & 255] ^ past_records[2][c >> 16 & 255] ^
        past_records[3][c >> 24];
    put32(start + CRC_AT, c ^ records_crc);
}

