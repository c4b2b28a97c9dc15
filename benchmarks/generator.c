/* A Kafka load generator that costs as little as possible, so that what is measured is the broker.
 *
 * One thread, epoll, non-blocking sockets, no Kafka library. Two modes:
 *
 *   produce  every connection keeps --in-flight requests of one batch each on their way (Produce v11, acks=all) and
 *            sends the next one as soon as an answer arrives. A round trip is one connection with one in flight; "50
 *            connections with one message each" is --connections 50 --in-flight 1 --batch-bytes 0. A connection writes
 *            to one partition (its number modulo --partitions), or with --rotate to the next one with every request.
 *   fetch    every connection asks for --fetch-bytes (Fetch v12), moves on behind the last whole batch, and starts
 *            over at the end of the log; with --random it jumps to a random offset each time.
 *
 * Batches are what an idempotent producer sends: a producer id of the connection's own from InitProducerId, running
 * sequence numbers, a correct CRC32C (generator_batch.h).
 *
 * The result is one line of JSON. "MB" is 10^6 bytes of record batches. Exit status 0 even when the broker answered
 * with errors (they are counted), 1 when there is no result.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "generator_batch.h"

enum { PRODUCE = 0, FETCH = 1, INIT_PRODUCER_ID = 22 };
enum { PRODUCE_VERSION = 11, FETCH_VERSION = 12, INIT_PRODUCER_ID_VERSION = 4 };
enum { HEAD_MAX = 512, TOPIC_MAX = 249, MAX_IN_FLIGHT = 1024 };
enum { ANSWER_TIMEOUT_MS = 60000, PRIME_SECONDS = 30 };

static struct {
    const char *host, *topic, *login;
    int port, connections, in_flight, partitions, idempotent, rotate, random, verify, tls;
    long batch_bytes, record_bytes, fetch_bytes, max_bytes, max_requests;
    double seconds;
} opt = {.host = "127.0.0.1", .topic = "bench", .port = 9092, .connections = 1, .in_flight = 5, .partitions = 1,
         .idempotent = 1, .batch_bytes = 16384, .record_bytes = 1000, .fetch_bytes = 1 << 20, .seconds = 5};

#include "generator_tls.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint8_t *put_request_header(uint8_t *p, int api, int version, uint32_t correlation)
{
    p = put32(p, 0); /* frame length, set by whoever knows it */
    p = put16(p, api);
    p = put16(p, version);
    p = put32(p, correlation);
    p = put16(p, 9);
    memcpy(p, "generator", 9);
    return put8(p + 9, 0);
}

/* ---- connections ---- */

struct connection {
    int fd, partition, epoch, wants_output, dead;
    uint64_t producer, offset, high_watermark, log_start;
    uint32_t *sequences, next_correlation, due_correlation; /* the next sequence number, per partition */
    int outstanding;
    double *sent_at;                       /* a ring of --in-flight start times */
    uint8_t head[HEAD_MAX];                /* what precedes the records in the request on its way out */
    size_t head_size, request_size, sent;  /* `sent` of `request_size` bytes are out; equal means none on its way */
    uint8_t *in;
    size_t in_size, in_room;
};

static struct connection *connections;
static int poller, mode;
static double deadline;
static int stopping;
static uint64_t requests, payload_bytes, record_total, requests_started, bytes_started, errors, batches_verified;
static int first_error;
static float *latencies;
static size_t latency_count, latency_room;

static void note_latency(double seconds)
{
    if (latency_count == latency_room) {
        latency_room = latency_room ? latency_room * 2 : 1 << 20;
        latencies = realloc(latencies, latency_room * sizeof *latencies);
        if (!latencies)
            die("out of memory");
    }
    latencies[latency_count++] = (float)(seconds * 1e6);
}

static void note_error(struct connection *c, int code)
{
    if (!errors++)
        first_error = code;
    c->dead = 1; /* after a refused batch every later sequence number is out of order: this connection is over */
}

static int connect_to_broker(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1)
        die("%s is not an IPv4 address", opt.host);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        die("connect to %s:%d: %s", opt.host, opt.port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    net_begin(fd);
    return fd;
}

static void send_all(int fd, const uint8_t *p, size_t n)
{
    while (n) {
        ssize_t done = net_send(fd, p, n);
        if (done <= 0)
            die("send: %s", strerror(errno));
        p += done, n -= (size_t)done;
    }
}

/* Before the measurement: one small answer, blocking. */
static struct reader await_answer(int fd, uint8_t *answer, size_t room)
{
    size_t have = 0, need = 4;
    while (have < need) {
        ssize_t got = net_recv(fd, answer + have, need - have, 0);
        if (got <= 0)
            die("no answer: %s", got ? strerror(errno) : "connection closed");
        have += (size_t)got;
        if (have == 4)
            need = 4 + (size_t)get32(answer);
        if (need > room)
            die("answer of %zu bytes where a small one was due", need);
    }
    struct reader r = {answer + 4, answer + need, 0};
    take(&r, 4);  /* correlation id */
    return r;
}

/* SASL PLAIN, where --login names user and password, with a colon between them. */
static void log_in(int fd)
{
    uint8_t request[512], answer[4096], *p;
    size_t size = opt.login ? strlen(opt.login) : 0;
    if (!opt.login)
        return;
    const char *colon = strchr(opt.login, ':');
    if (!colon || size > 100)
        die("--login is user:password, of at most 100 bytes");
    p = put_request_header(request, 17, 1, 0) - 1; /* SaslHandshake has no tags */
    p = put16(p, 5);
    memcpy(p, "PLAIN", 5);
    p += 5;
    put32(request, (uint32_t)(p - request - 4));
    send_all(fd, request, (size_t)(p - request));
    struct reader r = await_answer(fd, answer, sizeof answer);
    if (get16(take(&r, 2)))
        die("the broker does not offer PLAIN");
    p = put_request_header(request, 36, 2, 0); /* SaslAuthenticate */
    p = put8(p, (int)size + 2); /* a compact length is one more; the token has one zero more than the text */
    p = put8(p, 0);
    memcpy(p, opt.login, size);
    p[colon - opt.login] = 0;
    p = put8(p + size, 0);
    put32(request, (uint32_t)(p - request - 4));
    send_all(fd, request, (size_t)(p - request));
    r = await_answer(fd, answer, sizeof answer);
    take(&r, 1); /* tags */
    if (get16(take(&r, 2)))
        die("the login was refused");
}

static void init_producer_id(struct connection *c)
{
    uint8_t request[128], answer[4096], *p;
    double until = now() + PRIME_SECONDS;
    for (;;) {
        p = put_request_header(request, INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, 0);
        p = put8(p, 0); /* no transactional id */
        p = put32(p, 60000);
        p = put64(p, (uint64_t)-1);
        p = put16(p, -1);
        p = put8(p, 0);
        put32(request, (uint32_t)(p - request - 4));
        send_all(c->fd, request, (size_t)(p - request));
        struct reader r = await_answer(c->fd, answer, sizeof answer);
        take(&r, 5); /* tags, throttle time */
        int error = (int16_t)get16(take(&r, 2));
        c->producer = get64(take(&r, 8));
        c->epoch = (int16_t)get16(take(&r, 2));
        if (r.bad)
            die("InitProducerId: short answer");
        if (!error)
            return;
        if (now() > until)
            die("InitProducerId: error %d", error);
        usleep(50000);
    }
}

static void build_produce(struct connection *c)
{
    uint8_t *p = put_request_header(c->head, PRODUCE, PRODUCE_VERSION, c->next_correlation++);
    p = put8(p, 0);   /* no transactional id */
    p = put16(p, -1); /* acks = all */
    p = put32(p, 30000);
    p = put8(p, 2); /* one topic */
    p = put_string(p, opt.topic);
    p = put8(p, 2); /* one partition */
    p = put32(p, (uint32_t)c->partition);
    p = put_unsigned(p, batch_size() + 1);
    uint32_t *sequence = &c->sequences[c->partition];
    put_batch_header(p, c->producer, c->epoch, opt.idempotent ? *sequence : (uint32_t)-1);
    p += BATCH_HEADER;
    *sequence = (*sequence + record_count) & 0x7fffffff;
    if (opt.rotate)
        c->partition = (c->partition + 1) % opt.partitions;
    c->head_size = (size_t)(p - c->head);
    c->request_size = c->head_size + records_size + 3; /* three empty tag sections end the request */
    put32(c->head, (uint32_t)(c->request_size - 4));
}

static void build_fetch(struct connection *c)
{
    uint8_t *p = put_request_header(c->head, FETCH, FETCH_VERSION, c->next_correlation++);
    p = put32(p, (uint32_t)-1); /* replica */
    p = put32(p, 500);          /* wait, ms */
    p = put32(p, 1);            /* min bytes */
    p = put32(p, (uint32_t)opt.fetch_bytes);
    p = put8(p, 0);             /* read uncommitted */
    p = put32(p, 0);            /* no session ... */
    p = put32(p, (uint32_t)-1);
    p = put8(p, 2);
    p = put_string(p, opt.topic);
    p = put8(p, 2);
    p = put32(p, (uint32_t)c->partition);
    p = put32(p, (uint32_t)-1); /* leader epoch */
    p = put64(p, c->offset);
    p = put32(p, (uint32_t)-1); /* last fetched epoch */
    p = put64(p, (uint64_t)-1); /* log start: followers only */
    p = put32(p, (uint32_t)opt.fetch_bytes);
    p = put16(p, 0);            /* tags of partition and topic */
    p = put8(p, 1);             /* no forgotten topics */
    p = put8(p, 1);             /* no rack */
    p = put8(p, 0);
    c->head_size = c->request_size = (size_t)(p - c->head);
    put32(c->head, (uint32_t)(c->request_size - 4));
}

/* Returns the error code of the one partition, or -2 for an answer that cannot be read. */
static int read_produce_answer(struct reader *r)
{
    take(r, 1);                                  /* header tags */
    int topics = (int)take_unsigned(r);
    skip_string(r);
    int partitions = (int)take_unsigned(r);
    take(r, 4);
    int error = (int16_t)get16(take(r, 2));
    take(r, 8); /* base offset */
    return r->bad || topics != 2 || partitions != 2 ? -2 : error;
}

static int read_fetch_answer(struct connection *c, struct reader *r)
{
    take(r, 1 + 4);
    int error = (int16_t)get16(take(r, 2));
    take(r, 4); /* session */
    if (r->bad || error)
        return r->bad ? -2 : error;
    int topics = (int)take_unsigned(r);
    skip_string(r);
    int partitions = (int)take_unsigned(r);
    take(r, 4);
    error = (int16_t)get16(take(r, 2));
    c->high_watermark = get64(take(r, 8));
    take(r, 8); /* last stable offset */
    c->log_start = get64(take(r, 8));
    uint64_t aborted = take_unsigned(r);
    skip(r, aborted > 1 ? (aborted - 1) * 17 : 0);
    take(r, 4); /* preferred replica */
    uint64_t size = take_unsigned(r);
    size = size ? size - 1 : 0;
    if (r->bad || topics != 2 || partitions != 2 || (uint64_t)(r->end - r->at) < size)
        return -2;
    if (error)
        return error;
    const uint8_t *p = r->at, *end = p + size;
    uint64_t next = c->offset;
    payload_bytes += size;
    while (end - p >= BATCH_HEADER) {
        size_t whole = 12 + (size_t)get32(p + 8);
        if ((size_t)(end - p) < whole)
            break; /* cut by --fetch-bytes */
        uint64_t base = get64(p), last = base + get32(p + 23);
        if (last < c->offset || (next != c->offset && base != next))
            return -2; /* not what was asked for, or a gap */
        if (opt.verify) {
            if (crc32c(p + CRC_FROM, whole - CRC_FROM) != get32(p + CRC_AT))
                return -2;
            batches_verified++;
        }
        record_total += get32(p + 57);
        next = last + 1;
        p += whole;
    }
    if (next == c->offset && c->offset < c->high_watermark)
        return -2; /* there was data, and none came */
    c->offset = next;
    return 0;
}

static void choose_offset(struct connection *c)
{
    static uint64_t seed = 0x9e3779b97f4a7c15u;
    if (opt.random && c->high_watermark > c->log_start) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        c->offset = c->log_start + seed % (c->high_watermark - c->log_start);
    } else if (c->offset >= c->high_watermark) {
        c->offset = c->log_start;
    }
}

static void watch(struct connection *c, int output)
{
    if (c->wants_output == output)
        return;
    c->wants_output = output;
    struct epoll_event event = {.events = EPOLLIN | (output ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

static void fill(struct iovec *part, const uint8_t *data, size_t size, size_t *skipped)
{
    size_t over = *skipped < size ? *skipped : size;
    part->iov_base = (void *)(data + over);
    part->iov_len = size - over;
    *skipped -= over;
}

/* Write until everything allowed is out or the socket is full. */
static void pump(struct connection *c)
{
    static const uint8_t tags[3];
    while (!c->dead) {
        if (c->sent == c->request_size) {
            if (stopping || c->outstanding == opt.in_flight)
                break;
            if ((opt.max_bytes && bytes_started >= (uint64_t)opt.max_bytes) ||
                (opt.max_requests && requests_started >= (uint64_t)opt.max_requests)) {
                stopping = 1;
                break;
            }
            c->sent_at[c->next_correlation % (uint32_t)opt.in_flight] = now();
            if (mode == PRODUCE)
                build_produce(c);
            else
                build_fetch(c);
            c->sent = 0;
            c->outstanding++;
            requests_started++;
            bytes_started += mode == PRODUCE ? batch_size() : 0;
        }
        struct iovec parts[3];
        size_t skipped = c->sent;
        fill(&parts[0], c->head, c->head_size, &skipped);
        fill(&parts[1], records, mode == PRODUCE ? records_size : 0, &skipped);
        fill(&parts[2], tags, mode == PRODUCE ? sizeof tags : 0, &skipped);
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = mode == PRODUCE ? 3 : 1};
        ssize_t done = net_sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (done < 0) {
            if (errno == EAGAIN) {
                watch(c, 1);
                return;
            }
            note_error(c, -3);
            break;
        }
        c->sent += (size_t)done;
    }
    watch(c, 0);
}

static void one_answer(struct connection *c, const uint8_t *frame, size_t size)
{
    struct reader r = {frame, frame + size, 0};
    uint32_t correlation = get32(take(&r, 4));
    int error = -2;
    if (!r.bad && correlation == c->due_correlation)
        error = mode == PRODUCE ? read_produce_answer(&r) : read_fetch_answer(c, &r);
    double moment = now();
    note_latency(moment - c->sent_at[correlation % (uint32_t)opt.in_flight]);
    c->due_correlation++;
    c->outstanding--;
    requests++;
    if (error) {
        note_error(c, error);
        return;
    }
    if (mode == PRODUCE) {
        payload_bytes += batch_size();
        record_total += record_count;
    } else {
        choose_offset(c);
        if (opt.max_bytes && payload_bytes >= (uint64_t)opt.max_bytes)
            stopping = 1;
    }
    if (moment >= deadline)
        stopping = 1;
}

/* Read what is there; a frame is judged once it is whole. */
static void drain_once(struct connection *c)
{
    ssize_t got = net_recv(c->fd, c->in + c->in_size, c->in_room - c->in_size, MSG_DONTWAIT);
    if (got <= 0) {
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        note_error(c, -3);
        return;
    }
    c->in_size += (size_t)got;
    size_t at = 0;
    while (c->in_size - at >= 4) {
        size_t size = get32(c->in + at);
        if (size > 512u << 20) {
            note_error(c, -2);
            return;
        }
        if (c->in_size - at < 4 + size) {
            if (4 + size > c->in_room) {
                c->in_room = 4 + size;
                c->in = realloc(c->in, c->in_room);
                if (!c->in)
                    die("out of memory");
            }
            break;
        }
        one_answer(c, c->in + at + 4, size);
        at += 4 + size;
        if (c->dead)
            return;
    }
    if (at) {
        memmove(c->in, c->in + at, c->in_size - at);
        c->in_size -= at;
    }
}

static void drain(struct connection *c)
{
    do
        drain_once(c);
    while (!c->dead && net_pending(c->fd));
}

/* Acknowledged requests for every partition a connection writes to before the clock starts: a topic that was just created
 * may not be served yet, and its files are made at the first append. */
static void prime(struct connection *c)
{
    uint8_t *answer = allocate(64u << 20);
    double until = now() + PRIME_SECONDS;
    for (;;) {
        int partition = c->partition;
        uint32_t sequence = c->sequences[partition];
        if (mode == PRODUCE)
            build_produce(c);
        else
            build_fetch(c);
        static const uint8_t tags[3];
        send_all(c->fd, c->head, c->head_size);
        if (mode == PRODUCE) {
            send_all(c->fd, records, records_size);
            send_all(c->fd, tags, sizeof tags);
        }
        struct reader r = await_answer(c->fd, answer, 64u << 20);
        int error = mode == PRODUCE ? read_produce_answer(&r) : read_fetch_answer(c, &r);
        if (!error)
            break;
        if (error < 0 || now() > until)
            die("first request: error %d", error);
        c->partition = partition;
        c->sequences[partition] = sequence;
        usleep(20000);
    }
    if (mode == FETCH)
        choose_offset(c);
    c->due_correlation = c->next_correlation;
    c->sent = c->request_size;
    free(answer);
}

static void open_connections(void)
{
    poller = epoll_create1(0);
    connections = allocate((size_t)opt.connections * sizeof *connections);
    for (int i = 0; i < opt.connections; i++) {
        struct connection *c = &connections[i];
        c->fd = connect_to_broker();
        log_in(c->fd);
        c->partition = i % opt.partitions;
        c->producer = (uint64_t)-1;
        c->epoch = -1;
        c->sequences = allocate((size_t)opt.partitions * sizeof *c->sequences);
        c->sent_at = allocate((size_t)opt.in_flight * sizeof *c->sent_at);
        c->in_room = mode == PRODUCE ? 65536 : (size_t)opt.fetch_bytes + 65536;
        c->in = allocate(c->in_room);
        if (mode == PRODUCE && opt.idempotent)
            init_producer_id(c);
        for (int left = opt.rotate ? opt.partitions : 1; left; left--)
            prime(c);
        net_never_wait(c->fd);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
    }
    requests = payload_bytes = record_total = batches_verified = 0;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static double quantile(double share)
{
    if (!latency_count)
        return 0;
    size_t at = (size_t)(share * (double)latency_count);
    return latencies[at < latency_count ? at : latency_count - 1];
}

static void run(void)
{
    double start = now(), cpu = cpu_seconds(), last = start;
    deadline = start + opt.seconds;
    for (int i = 0; i < opt.connections; i++)
        pump(&connections[i]);
    for (;;) {
        int waiting = 0;
        for (int i = 0; i < opt.connections && !waiting; i++)
            waiting = connections[i].outstanding && !connections[i].dead;
        if (!waiting)
            break;
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, ANSWER_TIMEOUT_MS);
        if (ready < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        if (ready == 0)
            die("no answer for %d s", ANSWER_TIMEOUT_MS / 1000);
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                drain(c);
            if (c->dead)
                epoll_ctl(poller, EPOLL_CTL_DEL, c->fd, NULL);
            else
                pump(c);
        }
        last = now();
    }
    double taken = last - start;
    qsort(latencies, latency_count, sizeof *latencies, by_size);
    printf("{\"mode\": \"%s\", \"connections\": %d, \"in_flight\": %d, \"partitions\": %d, \"batch_bytes\": %zu, "
           "\"records_per_batch\": %u, \"requests\": %lu, \"bytes\": %lu, \"records\": %lu, \"seconds\": %.4f, "
           "\"requests_per_s\": %.1f, \"mb_per_s\": %.2f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, "
           "\"max_us\": %.1f, \"errors\": %lu, \"first_error\": %d, \"verified\": %lu, \"generator_cpu\": %.3f}\n",
           mode == PRODUCE ? "produce" : "fetch", opt.connections, opt.in_flight, opt.partitions,
           mode == PRODUCE ? batch_size() : 0, record_count, requests, payload_bytes, record_total, taken,
           (double)requests / taken, (double)payload_bytes / taken / 1e6, quantile(0.5), quantile(0.99),
           quantile(0.999), quantile(1), errors, first_error, batches_verified, (cpu_seconds() - cpu) / taken);
}

int main(int count, char **arguments)
{
    static const struct option names[] = {
        {"host", 1, 0, 'h'}, {"port", 1, 0, 'p'}, {"topic", 1, 0, 't'}, {"connections", 1, 0, 'c'},
        {"in-flight", 1, 0, 'i'}, {"partitions", 1, 0, 'n'}, {"idempotent", 1, 0, 'd'}, {"batch-bytes", 1, 0, 'b'},
        {"record-bytes", 1, 0, 'r'}, {"fetch-bytes", 1, 0, 'f'}, {"seconds", 1, 0, 's'}, {"max-bytes", 1, 0, 'B'},
        {"max-requests", 1, 0, 'R'}, {"rotate", 0, 0, 'o'}, {"random", 0, 0, 'x'}, {"verify", 0, 0, 'v'}, {"tls", 0, 0, 'T'},
        {"login", 1, 0, 'l'},
        {0, 0, 0, 0}};
    if (count < 2 || (strcmp(arguments[1], "produce") && strcmp(arguments[1], "fetch")))
        die("usage: %s produce|fetch [--option value ...], see the top of generator.c", arguments[0]);
    mode = strcmp(arguments[1], "produce") ? FETCH : PRODUCE;
    opt.in_flight = mode == PRODUCE ? 5 : 1;
    optind = 2;
    for (int name; (name = getopt_long(count, arguments, "", names, NULL)) != -1;)
        switch (name) {
        case 'h': opt.host = optarg; break;
        case 'p': opt.port = atoi(optarg); break;
        case 't': opt.topic = optarg; break;
        case 'c': opt.connections = atoi(optarg); break;
        case 'i': opt.in_flight = atoi(optarg); break;
        case 'n': opt.partitions = atoi(optarg); break;
        case 'd': opt.idempotent = atoi(optarg); break;
        case 'b': opt.batch_bytes = atol(optarg); break;
        case 'r': opt.record_bytes = atol(optarg); break;
        case 'f': opt.fetch_bytes = atol(optarg); break;
        case 's': opt.seconds = atof(optarg); break;
        case 'B': opt.max_bytes = atol(optarg); break;
        case 'R': opt.max_requests = atol(optarg); break;
        case 'o': opt.rotate = 1; break;
        case 'x': opt.random = 1; break;
        case 'v': opt.verify = 1; break;
        case 'T': opt.tls = 1; break;
        case 'l': opt.login = optarg; break;
        default: return 1;
        }
    if (opt.connections < 1 || opt.in_flight < 1 || opt.in_flight > MAX_IN_FLIGHT || opt.partitions < 1 ||
        opt.record_bytes < 0 || opt.fetch_bytes < 1 || strlen(opt.topic) > TOPIC_MAX)
        die("an option is out of range");
    if (mode == PRODUCE && opt.idempotent && opt.in_flight > 5)
        die("an idempotent producer has at most 5 requests in flight");
    if (mode == FETCH && opt.in_flight != 1)
        die("a consumer has one fetch in flight per connection");
    signal(SIGPIPE, SIG_IGN);
    crc_setup();
    if (mode == PRODUCE)
        make_records(opt.batch_bytes, opt.record_bytes);
    open_connections();
    run();
    return 0;
}
