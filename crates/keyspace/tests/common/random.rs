//! Random commands on few keys, so that they collide.
#![allow(dead_code)]

/// The source of random commands.
pub struct Draw {
    pub random: fastrand::Rng,
    /// The time that deadlines are relative to.
    pub now_ms: u64,
    /// The least distance of a deadline from it, and how far it may be beyond.
    pub lifetimes_ms: (u64, u64),
    /// Whether keys, fields and values are arbitrary bytes, and values may be long.
    pub is_wild: bool,
}

pub type Words = Vec<Vec<u8>>;

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

impl Draw {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.usize(..of.len())]
    }

    pub fn key(&mut self) -> Vec<u8> {
        if self.is_wild && self.random.u8(..3) == 0 {
            let keys: [&[u8]; 5] = [b"", b"\0", b"\0\xff", b"\xff\xff", b"a\0b"];
            return keys[self.random.usize(..keys.len())].to_vec();
        }
        format!("k{}", self.random.u8(..6)).into_bytes()
    }

    fn field(&mut self) -> Vec<u8> {
        if self.is_wild && self.random.u8(..3) == 0 {
            return vec![self.random.u8(..2) * 255; self.random.usize(..3)];
        }
        format!("f{}", self.random.u8(..5)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.random.u8(..8) {
            0 => self.random.i64(..).to_string().into_bytes(),
            1 => b"9223372036854775807".to_vec(),
            2 => self.one(&["", "-0", "+1", " 1", "1 ", "01", "-9223372036854775808", "1.5", "v"]).into(),
            3 if self.is_wild => {
                let len = [255, 256, 300, 5000, 20_000, 70_000][self.random.usize(..6)];
                vec![self.random.u8(..); len]
            }
            _ => self.random.i8(..).to_string().into_bytes(),
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        match self.random.u8(..6) {
            0 => self.value(),
            1 => self.random.i64(..).to_string().into_bytes(),
            _ => self.random.i8(..).to_string().into_bytes(),
        }
    }

    /// A lifetime in one of its notations, in rare cases one that is over already.
    fn lifetime(&mut self, names: [&str; 4]) -> Words {
        let (least, more) = self.lifetimes_ms;
        let mut after = (least + self.random.u64(..=more)) as i64;
        if self.random.u8(..6) == 0 {
            after = -after;
        }
        let now = self.now_ms as i64;
        let (name, number) = match self.random.usize(..4) {
            0 => (names[0], after / 1000),
            1 => (names[1], after),
            2 => (names[2], (now + after) / 1000),
            _ => (names[3], now + after),
        };
        vec![name.into(), number.to_string().into_bytes()]
    }

    fn many(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> Words) -> Words {
        let count = self.random.usize(1..=most);
        (0..count).flat_map(|_| one(self)).collect()
    }

    /// A command and its arguments.
    pub fn command(&mut self) -> Words {
        let key = self.key();
        let with = |name: &str, rest: Words| [vec![name.as_bytes().to_vec(), key.clone()], rest].concat();
        match self.random.u8(..37) {
            0 | 1 => with("set", vec![self.value()]),
            2..=4 => self.set(key),
            5 => with("setnx", vec![self.value()]),
            6 => with("getset", vec![self.value()]),
            7 => {
                let name = self.one(&["setex", "psetex"]);
                let (lifetime, value) = (self.lifetime(["", "", "", ""]).swap_remove(1), self.value());
                with(name, vec![lifetime, value])
            }
            8 => with("getdel", vec![]),
            9 => {
                let rest = match self.random.u8(..4) {
                    0 => vec![],
                    1 => vec![b"persist".to_vec()],
                    _ => self.lifetime(["ex", "px", "exat", "pxat"]),
                };
                with("getex", rest)
            }
            10 | 11 => with("append", vec![self.value()]),
            12 => with("strlen", vec![]),
            13 => with(
                "getrange",
                vec![self.random.i8(..).to_string().into(), self.random.i8(..).to_string().into()],
            ),
            14 => with(self.one(&["incr", "decr"]), vec![]),
            15 => with(self.one(&["incrby", "decrby"]), vec![self.integer()]),
            16 => [words("mget"), self.many(4, |draw| vec![draw.key()])].concat(),
            17 => [words("mset"), self.many(4, |draw| vec![draw.key(), draw.value()])].concat(),
            18 => [words(self.one(&["del", "unlink"])), self.many(3, |draw| vec![draw.key()])].concat(),
            19 => [words(self.one(&["exists", "touch"])), self.many(4, |draw| vec![draw.key()])].concat(),
            20 | 21 => {
                let mut rest = self.lifetime(["expire", "pexpire", "expireat", "pexpireat"]);
                let name = rest.remove(0);
                if self.random.bool() {
                    rest.push(self.one(&["nx", "xx", "gt", "lt"]).into());
                }
                [vec![name, key.clone()], rest].concat()
            }
            22 => with(self.one(&["ttl", "pttl"]), vec![]),
            23 => with(self.one(&["expiretime", "pexpiretime"]), vec![]),
            24 => with("persist", vec![]),
            25 => with("type", vec![]),
            26 | 27 => {
                let name = self.one(&["hset", "hmset"]);
                with(name, self.many(4, |draw| vec![draw.field(), draw.value()]))
            }
            28 => with("hsetnx", vec![self.field(), self.value()]),
            29 => with("hget", vec![self.field()]),
            30 => with("hmget", self.many(4, |draw| vec![draw.field()])),
            31 => with("hdel", self.many(4, |draw| vec![draw.field()])),
            32 => with(self.one(&["hexists", "hstrlen"]), vec![self.field()]),
            33 => with("hlen", vec![]),
            34 => with(self.one(&["hgetall", "hkeys", "hvals"]), vec![]),
            35 => with("hincrby", vec![self.field(), self.integer()]),
            _ if self.random.u8(..8) == 0 => words("flushall"),
            _ => with("get", vec![]),
        }
    }

    fn set(&mut self, key: Vec<u8>) -> Words {
        let mut request = vec![b"set".to_vec(), key, self.value()];
        match self.random.u8(..4) {
            0 => request.push(b"nx".to_vec()),
            1 => request.push(b"xx".to_vec()),
            2 if self.is_wild => request.extend([b"ifeq".to_vec(), self.value()]),
            _ => {}
        }
        match self.random.u8(..3) {
            0 => request.push(b"keepttl".to_vec()),
            1 => request.extend(self.lifetime(["ex", "px", "exat", "pxat"])),
            _ => {}
        }
        if self.random.u8(..3) == 0 {
            request.push(b"get".to_vec());
        }
        request
    }
}
