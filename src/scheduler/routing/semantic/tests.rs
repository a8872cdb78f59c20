//! Plain cases in Chinese and English, small enough to be judged by reading.

use super::*;

fn profile(capability: &str, tags: &[&str]) -> Profile {
    let capability = Capability::new(capability).expect("a capability");
    Profile { tags: tags.iter().map(|&tag| tag.to_owned()).collect(), ..Profile::new(capability) }
}

fn office() -> Vec<Profile> {
    vec![
        profile("sales.report", &["分析/趋势/报告"]),
        profile("ops.ticket", &["执行/工单/推送"]),
        profile("voice.cluster", &["投诉/聚类/分析"]),
        profile("user.profile", &["用户/画像/查询"]),
    ]
}

fn all(_: &Capability) -> bool {
    true
}

/// The capability that a text is routed to.
fn routed(router: &Router, text: &str) -> Option<String> {
    let best = router.ask(text, &all).into_iter().next()?;
    best.fits.then(|| best.capability.to_string())
}

fn with_examples(capability: &str, examples: &[&str]) -> Profile {
    Profile { examples: examples.iter().map(|&text| text.to_owned()).collect(), ..profile(capability, &[]) }
}

fn travel() -> Vec<Profile> {
    let flights = [
        "book me a flight to rome",
        "i need a plane ticket for monday",
        "reserve two seats on a flight",
        "get me on the next plane to oslo",
        "i want to fly to paris",
        "find a cheap flight",
        "buy an airline ticket",
        "book a flight home for me",
    ];
    let weather = [
        "will it rain today",
        "what is the weather like",
        "how cold is it outside",
        "is it going to snow tomorrow",
        "give me the forecast for oslo",
        "what is the temperature in rome",
        "do i need an umbrella",
        "how windy will it be on monday",
    ];
    let songs = [
        "play some jazz",
        "put on my favourite song",
        "i want to hear the beatles",
        "play the next track",
        "start my workout playlist",
        "turn the music louder",
        "play that song again",
        "shuffle my playlist",
    ];
    vec![
        with_examples("travel.flight", &flights),
        with_examples("weather.forecast", &weather),
        with_examples("music.play", &songs),
    ]
}

fn trained(profiles: &[Profile]) -> Router {
    let learned =
        Learned::learn(profiles, &mut |_, _| ControlFlow::Continue(())).expect("there is enough to learn from");
    Router::new(profiles, Some(Arc::new(learned)))
}

#[test]
fn a_report_in_chinese_goes_to_the_agent_that_is_tagged_for_reports() {
    let router = Router::new(&office(), None);
    assert_eq!(routed(&router, "帮我生成一份本周销售趋势报告").as_deref(), Some("sales.report"));
}

#[test]
fn a_message_to_push_goes_to_the_agent_that_is_tagged_for_pushing() {
    let router = Router::new(&office(), None);
    assert_eq!(routed(&router, "把订单异常信息推送到运维群").as_deref(), Some("ops.ticket"));
}

#[test]
fn complaints_go_to_the_agent_for_complaints_and_not_to_the_one_that_merely_says_user() {
    let router = Router::new(&office(), None);
    assert_eq!(routed(&router, "用户投诉聚类分析").as_deref(), Some("voice.cluster"));
    let names: Vec<String> =
        router.ask("用户投诉聚类分析", &all).iter().map(|one| one.capability.to_string()).collect();
    assert!(names.contains(&"user.profile".to_owned()), "it is a near miss: {names:?}");
}

#[test]
fn what_nobody_offers_fits_nothing() {
    let router = Router::new(&office(), None);
    for text in ["明天成都会下雨吗", "what is the capital of norway", "", "。。。"] {
        assert_eq!(routed(&router, text), None, "{text}");
    }
    assert!(Router::new(&[], None).ask("anything", &all).is_empty());
}

#[test]
fn the_words_that_spoke_for_it_are_told() {
    let best = Router::new(&office(), None).ask("用户投诉聚类分析", &all).remove(0);
    let words: Vec<&str> = best.because.iter().map(|(word, _)| &**word).collect();
    assert!(["投诉", "聚类", "分析"].iter().all(|word| words.contains(word)), "{words:?}");
    let sum: f32 = best.parts.iter().map(|(_, part)| part).sum();
    assert!((sum - best.score).abs() < 1e-6, "{best:?}");
}

#[test]
fn english_tags_names_and_descriptions_are_found_whatever_the_ending() {
    let mut invoices = profile("finance.invoice", &["finance/check/invoice"]);
    invoices.description = "Checks incoming invoices against orders and books them".to_owned();
    let router = Router::new(&[invoices, profile("text.translate", &["text/translate/document"])], None);
    assert_eq!(routed(&router, "please check these invoices").as_deref(), Some("finance.invoice"));
    assert_eq!(routed(&router, "I want this document translated").as_deref(), Some("text.translate"));
    assert_eq!(routed(&router, "how do I get to the airport"), None);
}

#[test]
fn an_alias_that_is_named_is_enough_and_part_of_another_word_is_not() {
    let mut search = profile("web.search", &[]);
    search.aliases = vec!["look up".to_owned(), "搜一下".to_owned()];
    let router = Router::new(&[search, profile("text.count", &[])], None);
    assert_eq!(routed(&router, "look up what the fjord is called").as_deref(), Some("web.search"));
    assert_eq!(routed(&router, "帮我搜一下附近的餐厅").as_deref(), Some("web.search"));
    assert_eq!(routed(&router, "the outlook upsets me"), None);
}

#[test]
fn a_capability_that_is_named_is_meant() {
    let router = trained(&travel());
    let best = router.ask("run music.play, please: will it rain", &all).remove(0);
    assert_eq!((best.capability.as_str(), best.by, best.score), ("music.play", By::Name, 1.0));
    assert_eq!(routed(&router, "music.player: what is the weather like in rome").as_deref(), Some("weather.forecast"));
}

#[test]
fn examples_teach_what_no_single_example_says() {
    let router = trained(&travel());
    assert_eq!(routed(&router, "can you book a plane to berlin").as_deref(), Some("travel.flight"));
    assert_eq!(routed(&router, "is it cold in oslo").as_deref(), Some("weather.forecast"));
    assert_eq!(routed(&router, "play a song").as_deref(), Some("music.play"));
    let best = router.ask("play a song", &all).remove(0);
    assert_eq!(best.by, By::Examples);
    assert_eq!(best.because.first().map(|(word, _)| &**word), Some("play"), "{:?}", best.because);
}

#[test]
fn examples_in_chinese_teach_as_well() {
    let refunds = [
        "我要退款",
        "申请退货退款",
        "钱什么时候退给我",
        "退款还没到账",
        "这单我想退掉",
        "怎么退钱",
        "帮我退款",
        "退款进度",
    ];
    let couriers = [
        "快递到哪了",
        "查一下物流",
        "我的包裹怎么还没到",
        "物流信息查询",
        "快递单号是多少",
        "包裹什么时候送到",
        "催一下快递",
        "查快递",
    ];
    let router = trained(&[with_examples("shop.refund", &refunds), with_examples("shop.courier", &couriers)]);
    assert_eq!(routed(&router, "退款多久能到账").as_deref(), Some("shop.refund"));
    assert_eq!(routed(&router, "我的快递什么时候到").as_deref(), Some("shop.courier"));
    assert_eq!(routed(&router, "今天股市行情"), None);
}

#[test]
fn a_capability_that_came_later_is_found_by_its_words_until_it_is_learned() {
    let mut profiles = travel();
    let learned = trained(&profiles).learned().cloned();
    profiles.push(profile("sales.report", &["分析/趋势/报告"]));
    let router = Router::new(&profiles, learned);
    assert_eq!(routed(&router, "销售趋势报告").as_deref(), Some("sales.report"));
    assert_eq!(routed(&router, "play a song").as_deref(), Some("music.play"));
}

#[test]
fn one_that_is_not_admitted_is_no_candidate() {
    let router = trained(&travel());
    let others = |capability: &Capability| capability.as_str() != "music.play";
    assert!(router.ask("play a song", &others).iter().all(|one| one.capability.as_str() != "music.play"));
}

#[test]
fn load_moves_one_behind_another_and_never_out_of_the_answer() {
    let router = Router::new(&office(), None);
    let mut best = router.ask("用户投诉聚类分析", &all).remove(0);
    let idle = best.score;
    best.weigh(0.0);
    assert!(best.fits && (idle - best.score - FREE).abs() < 1e-6, "{best:?}");
}

#[test]
fn one_capability_alone_has_no_rest_to_be_told_from() {
    assert!(Learned::learn(&travel()[..1], &mut |_, _| ControlFlow::Continue(())).is_none());
}

#[test]
fn the_score_at_the_margin_is_the_threshold() {
    assert!((score_of(MARGIN) - THRESHOLD).abs() < 1e-6);
    assert!(score_of(1.0) > 0.9 && score_of(-2.0) < 0.05);
}
