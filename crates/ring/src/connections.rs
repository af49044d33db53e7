//! The connections of one loop. Each has an index, which is its token at the poll.

use crate::connection::Connection;

/// The connections of one loop.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    places: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
}

impl Connections {
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn get(&self, key: usize) -> Option<&Connection> {
        self.places.get(key)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut Connection> {
        self.places.get_mut(key)?.as_deref_mut()
    }

    pub(crate) fn insert(&mut self, mut connection: Connection) -> usize {
        let key = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        connection.session.key = key;
        if let Some(place) = self.places.get_mut(key) {
            *place = Some(Box::new(connection));
        }
        key
    }

    pub(crate) fn remove(&mut self, key: usize) -> Option<Box<Connection>> {
        let removed = self.places.get_mut(key)?.take()?;
        self.free.push(key);
        Some(removed)
    }

    /// All connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.places.iter().enumerate().filter_map(|(key, place)| Some((key, place.as_deref()?)))
    }

    /// All connections, mutably.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Connection)> {
        self.places.iter_mut().enumerate().filter_map(|(key, place)| Some((key, place.as_deref_mut()?)))
    }
}
